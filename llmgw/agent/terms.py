"""The highest term this agent has accepted, durable before anything is done under it.

Guarantees: `accept` returns only after the term is on disk, and terms never go back. One agent
per state directory (`llmgw.agent.main` holds the lock).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ha.leaderkey import TERM_MAX
from llmgw.agent.errors import StateDirError
from llmgw.kit.files import write_atomically

if TYPE_CHECKING:
    from pathlib import Path

    from llmgw.kit.journal import Journal

_VERSION = 1


class Terms:
    """The term file of one state directory.

    Raises:
        StateDirError: the file exists but cannot be read; guessing a term would be unsafe.
    """

    def __init__(self, path: Path, journal: Journal) -> None:
        self._path = path
        self._journal = journal
        self.highest = self._load()

    def accept(self, term: int) -> None:
        """Make a term durable if it is higher than all before; blocks for one fsync."""
        if term <= self.highest:
            return
        document = json.dumps({"version": _VERSION, "term": term})
        write_atomically(self._path, document.encode())
        self.highest = term
        self._journal.write("term", term=term)

    def _load(self) -> int:
        try:
            return _decode(self._path.read_bytes())
        except FileNotFoundError:
            return 0
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise StateDirError(f"cannot read the term in {self._path}: {error}") from error


def _decode(content: bytes) -> int:
    document = json.loads(content)
    if document["version"] != _VERSION:
        raise ValueError(f"version {document['version']} is not {_VERSION}")
    term = document["term"]
    if not isinstance(term, int) or isinstance(term, bool) or not 0 <= term <= TERM_MAX:
        raise ValueError(f"{str(term)[:40]!r} is not a term")
    return term
