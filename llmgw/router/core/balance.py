"""Decides which of a model's endpoints gets the next request.

The best priority (lowest number) that has an endpoint in service wins; within it the one with
the fewest outstanding requests in relation to its weight. When every endpoint is ejected, all of
them are considered: a request that may fail is better than one that must. Guarantees that equal
endpoints take turns, whatever changes around them, as long as the caller's `turn` rises by one
with each choice. It does not look at prompts, sessions or caches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence


class Candidate(Protocol):
    """One endpoint as the choice sees it. Weight 0: gets nothing."""

    @property
    def priority(self) -> int:
        """The lowest wins."""
        ...

    @property
    def weight(self) -> int:
        """Its share."""
        ...

    @property
    def outstanding(self) -> int:
        """How many requests it has."""
        ...

    @property
    def in_service(self) -> bool:
        """Whether it is not ejected, or may be probed."""
        ...


C = TypeVar("C", bound=Candidate)


def choose(candidates: Sequence[C], turn: int) -> C | None:
    """The endpoint for the next request, or None if none may get one.

    Args:
        candidates: all endpoints of one model that this request has not tried yet.
        turn: a counter that breaks ties; raise it by one with every choice.
    """
    willing = [candidate for candidate in candidates if candidate.weight > 0]
    in_service = [candidate for candidate in willing if candidate.in_service]
    eligible = in_service or willing
    if not eligible:
        return None
    if len(eligible) == 1:
        return eligible[0]
    best = min(candidate.priority for candidate in eligible)
    eligible = [candidate for candidate in eligible if candidate.priority == best]
    # (outstanding + 1) / weight, compared without division: exact for any weight.
    lightest = eligible[0]
    for candidate in eligible[1:]:
        if _load_below(candidate, lightest):
            lightest = candidate
    ties = [candidate for candidate in eligible if not _load_below(lightest, candidate)]
    return ties[turn % len(ties)]


def _load_below(one: Candidate, other: Candidate) -> bool:
    return (one.outstanding + 1) * other.weight < (other.outstanding + 1) * one.weight
