"""A shard's life: which state may follow which.

Decides nothing but that. `TRANSITIONS` is the whole table; `ShardLife.move` is the one way to
change a state, and an illegal move raises with the shard's story so far. STOPPED and FAILED mean
that no process of the shard is left: while leftovers of a dead engine are being ended, the shard
is DRAINING.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from llmgw.domain.shard import ShardState

if TYPE_CHECKING:
    from collections.abc import Mapping

_S = ShardState

TRANSITIONS: Mapping[ShardState, frozenset[ShardState]] = {
    _S.PENDING: frozenset({_S.STARTING, _S.STOPPED, _S.FAILED}),
    _S.STARTING: frozenset({_S.LOADING, _S.READY, _S.DRAINING, _S.FAILED}),
    _S.LOADING: frozenset({_S.READY, _S.DRAINING, _S.FAILED}),
    _S.READY: frozenset({_S.DRAINING, _S.FAILED}),
    _S.DRAINING: frozenset({_S.STOPPED, _S.FAILED}),
    # A failed shard is kept, with its reason, until the leader stops it.
    _S.FAILED: frozenset({_S.STOPPED}),
    _S.STOPPED: frozenset(),
}


@dataclass(frozen=True, slots=True)
class Move:
    """One step of a shard's life, and why."""

    state: ShardState
    reason: str


class IllegalMoveError(RuntimeError):
    """A programmer's error: a move that the table does not have."""


class ShardLife:
    """One shard's state and how it came there."""

    def __init__(
        self, shard_id: str, state: ShardState = ShardState.PENDING, reason: str = "accepted"
    ) -> None:
        self._shard_id = shard_id
        self._moves = [Move(state, reason)]

    @property
    def state(self) -> ShardState:
        """The present state."""
        return self._moves[-1].state

    @property
    def reason(self) -> str:
        """Why the shard is in its present state."""
        return self._moves[-1].reason

    @property
    def story(self) -> str:
        """Every state so far with its reason, oldest first."""
        return " -> ".join(f"{move.state} ({move.reason})" for move in self._moves)

    def move(self, state: ShardState, reason: str) -> None:
        """Go to another state.

        Raises:
            IllegalMoveError: the table has no such move; the message tells the story.
        """
        if state not in TRANSITIONS[self.state]:
            raise IllegalMoveError(
                f"shard {self._shard_id} cannot become {state} ({reason}): {self.story}"
            )
        self._moves.append(Move(state, reason))
