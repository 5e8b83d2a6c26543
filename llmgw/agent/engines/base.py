"""What every engine class offers to the supervisor."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from llmgw.domain.node import EngineInstallation
    from llmgw.domain.shard import ShardSpec


class Health(Enum):
    """How an engine answers. Death is told by its process, not by its port."""

    SILENT = "nothing answers yet"
    LOADING = "it answers but is not ready"
    READY = "it is ready"


@dataclass(frozen=True, slots=True)
class Launch:
    """What to run: the program with its arguments, and variables added to the environment."""

    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


class Engine(Protocol):
    """One kind of inference server."""

    @property
    def name(self) -> str:
        """As profiles name it."""
        ...

    def installation(self) -> EngineInstallation | None:
        """What of it is on this node; None when it is not here."""
        ...

    def launch(self, spec: ShardSpec, address: str) -> Launch:
        """How to start a shard that listens on `address` and the spec's HTTP port.

        Raises:
            StartError: the spec cannot be run; the message says why.
        """
        ...

    async def health(self, url: str, status_of: Callable[[str], Awaitable[int | None]]) -> Health:
        """Tell silent, loading and ready apart.

        Args:
            url: where the engine listens, without a path.
            status_of: the HTTP status of a GET; None when nothing answers.
        """
        ...
