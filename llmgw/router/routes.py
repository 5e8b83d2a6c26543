"""Which paths there are, and what each is: decided by path alone, before any body is read."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum, auto


class Kind(StrEnum):
    """What a path leads to."""

    PROXY = auto()
    MODELS = auto()
    MODEL = auto()
    HEALTH = auto()
    READY = auto()
    METRICS = auto()


@dataclass(frozen=True, slots=True)
class Route:
    """A path that exists. `argument` is what follows the fixed part, for `MODEL` its id."""

    kind: Kind
    methods: tuple[str, ...]
    argument: str = ""


_READ = ("GET", "HEAD")
_PROXY = Route(Kind.PROXY, ("POST",))
_FIXED = {
    "/v1/chat/completions": _PROXY,
    "/v1/completions": _PROXY,
    "/v1/embeddings": _PROXY,
    "/v1/responses": _PROXY,
    "/v1/rerank": _PROXY,
    "/v1/models": Route(Kind.MODELS, _READ),
    "/healthz": Route(Kind.HEALTH, _READ),
    "/readyz": Route(Kind.READY, _READ),
    "/metrics": Route(Kind.METRICS, _READ),
}
_MODEL_PREFIX = "/v1/models/"
# Nothing that could mean another path at the engine: no dots, escapes or empty segments.
_BELOW = re.compile(r"/v1/(?:audio|images)(?:/[A-Za-z0-9_-]+)+")


def find_route(path: str) -> Route | None:
    """The route of a percent-decoded path, or None."""
    route = _FIXED.get(path)
    if route is not None:
        return route
    if path.startswith(_MODEL_PREFIX) and len(path) > len(_MODEL_PREFIX):
        return Route(Kind.MODEL, _READ, path.removeprefix(_MODEL_PREFIX))
    return _PROXY if _BELOW.fullmatch(path) else None
