"""What the keys of an election say: the leader, the term counter, the candidates.

All JSON but the counter, which is a decimal number. A leader key that cannot be read still says
that somebody leads: it decodes to a leader without name or term, and nobody campaigns over it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ha.store import RejectedError

if TYPE_CHECKING:
    from collections.abc import Mapping


TERM_MAX = 1 << 62
"""No election gets there; what is above was not written by one, and would not fit on the wire."""


@dataclass(frozen=True, slots=True)
class LeaderInfo:
    """Who leads. `facts` is what the leader told about itself: addresses, for instance."""

    id: str
    term: int
    facts: Mapping[str, str]
    create_revision: int


def encode_leader(identity: str, term: int, facts: Mapping[str, str]) -> bytes:
    """The leader key's value."""
    return json.dumps({**facts, "id": identity, "term": term}, sort_keys=True).encode()


def encode_candidate(identity: str, facts: Mapping[str, str]) -> bytes:
    """A candidate key's value."""
    return json.dumps({**facts, "id": identity}, sort_keys=True).encode()


def decode_leader(value: bytes, create_revision: int) -> LeaderInfo:
    """Read a leader key; what is not as it should be is left out."""
    try:
        document = json.loads(value)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        document = {}
    identity, term = document.pop("id", ""), document.pop("term", 0)
    return LeaderInfo(
        id=identity if isinstance(identity, str) else "",
        term=term if type(term) is int and 0 <= term <= TERM_MAX else 0,
        facts={key: text for key, text in document.items() if isinstance(text, str)},
        create_revision=create_revision,
    )


def decode_term(value: bytes) -> int:
    """Read the term counter.

    Raises:
        RejectedError: it is not a number of a sane size; terms must not start again, so nobody
            may lead.
    """
    text = value.decode(errors="replace")
    if not (text.isascii() and text.isdigit()):
        raise RejectedError(f"the term counter is not a number: {text[:40]!r}")
    if len(text) > len(str(TERM_MAX)) or int(text) > TERM_MAX:
        raise RejectedError(f"the term counter is above {TERM_MAX}: {text[:40]!r}")
    return int(text)
