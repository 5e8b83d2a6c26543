"""How an agent finds the leader: which addresses to dial, who wins, how long to wait.

Guarantees: of those that accept, the highest term wins; a standby's word about a higher term is
waited for, but never for longer than the shell's grace. Does no I/O: addresses, answers and
random numbers come in.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

BACKOFF_BASE_S = 0.05
BACKOFF_CAP_S = 1.0
RETRY_AFTER_MAX_S = 30.0
HINTS_MAX = 8
_DOUBLINGS_MAX = 10


@dataclass(frozen=True, slots=True)
class Target:
    """One address to dial, and the name that TLS must verify there."""

    address: str
    server_name: str


def backoff_s(attempt: int, draw: float, retry_after_s: float = 0.0) -> float:
    """Full-jitter delay before the next dial of one address, in seconds.

    Args:
        attempt: failures in a row so far, from 1.
        draw: a uniform random number in [0, 1).
        retry_after_s: what the server asked for; honoured up to `RETRY_AFTER_MAX_S`, and spread
            by the same jitter so that a storm does not come back as one.
    """
    ceiling_s = min(BACKOFF_CAP_S, BACKOFF_BASE_S * (1 << min(attempt, _DOUBLINGS_MAX)))
    return min(retry_after_s, RETRY_AFTER_MAX_S) + draw * ceiling_s


def targets(
    resolved: Mapping[str, Sequence[Target] | None],
    last_good: Mapping[str, Sequence[Target]],
    hints: Iterable[Target],
) -> dict[str, Target]:
    """Every address to dial now, by address.

    Args:
        resolved: by control name, this round's answer; None when resolution failed.
        last_good: by control name, the latest answer that worked.
        hints: where refusals said the leader is.
    """
    found: dict[str, Target] = {}
    for name, answer in resolved.items():
        for target in last_good.get(name, ()) if answer is None else answer:
            found.setdefault(target.address, target)
    for target in hints:
        found.setdefault(target.address, target)
    return found


@dataclass(slots=True)
class Candidates:
    """The answers of one search for the leader.

    `highest_term` is what the agent has accepted before; `named_term` the highest that a refusal
    named.
    """

    highest_term: int
    named_term: int = 0
    accepted: dict[str, int] = field(default_factory=dict)

    def accept(self, address: str, term: int) -> None:
        """This address leads, or believes so."""
        self.accepted[address] = term

    def name(self, term: int) -> None:
        """A refusal named the term of the leader it knows."""
        self.named_term = max(self.named_term, term)

    @property
    def best(self) -> str | None:
        """The accepting address with the highest term."""
        return max(self.accepted, key=lambda address: self.accepted[address], default=None)

    def settled(self, silent: int) -> bool:
        """Whether to attach to the best without waiting for more answers.

        Not while the best term is below one that is known of, nor while somebody is silent, unless
        a standby has named this very term: the shell's grace decides then.

        Args:
            silent: how many dialled addresses have not answered yet.
        """
        if self.best is None:
            return False
        term = self.accepted[self.best]
        if term < max(self.named_term, self.highest_term):
            return False
        return silent == 0 or term == self.named_term
