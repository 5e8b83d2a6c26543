"""The endpoints in use: their connections, outstanding requests and standing.

Follows the route table: a new endpoint starts in good standing; one that is withdrawn, or whose
address changed, is retired: running requests go on, nothing new reaches it. Guarantees that what
`take` counts as outstanding is uncounted by `Attempt.end`, once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from llmgw.kit.logs import get_logger
from llmgw.router.core.balance import choose
from llmgw.router.core.ejection import (
    GOOD_STANDING,
    EjectionPolicy,
    Standing,
    Verdict,
    in_service,
    on_chosen,
    on_verdict,
)
from llmgw.router.pool import Pool

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from ha.clock import Clock
    from llmgw.domain.endpoint import Endpoint
    from llmgw.router.table import RouteTable

_log = get_logger(__name__)
_HTTP_PORT = 80


@dataclass(slots=True)
class EndpointState:
    """One endpoint and what the router knows of it."""

    endpoint: Endpoint
    pool: Pool
    authority: bytes
    path_prefix: bytes
    standing: Standing = GOOD_STANDING
    outstanding: int = 0
    priority: int = 0
    weight: int = 0
    in_service: bool = True

    def __post_init__(self) -> None:
        self.adopt(self.endpoint)

    def adopt(self, endpoint: Endpoint) -> None:
        """Take over what the route table says of it now."""
        self.endpoint = endpoint
        self.priority, self.weight = endpoint.priority, endpoint.weight


class Attempt:
    """One attempt at one endpoint, from the choice to its end."""

    def __init__(self, endpoints: Endpoints, state: EndpointState, *, probe: bool) -> None:
        self.state = state
        self.probe = probe
        self._endpoints = endpoints
        self._ended = False

    def judge(self, verdict: Verdict) -> None:
        """Say how the endpoint did, as soon as that is known."""
        self._endpoints.judge(self.state, verdict, probe=self.probe)
        self.probe = False

    def end(self) -> None:
        """The attempt is over, judged or not; only the first call counts."""
        if self._ended:
            return
        self._ended = True
        self.state.outstanding -= 1
        if self.probe:
            self.judge(Verdict.NONE)


class Endpoints:
    """All endpoints, by model."""

    def __init__(
        self, clock: Clock, policy: EjectionPolicy, *, on_ejected: Callable[[str], None]
    ) -> None:
        self._clock = clock
        self._policy = policy
        self._on_ejected = on_ejected
        self._by_model: dict[str, dict[str, EndpointState]] = {}
        self._retired: list[EndpointState] = []
        self._turn = 0

    def follow(self, table: RouteTable) -> None:
        """Take over a new route table."""
        former = {
            state.endpoint.replica_id: state
            for states in self._by_model.values()
            for state in states.values()
        }
        self._by_model = {
            model: {
                endpoint.replica_id: state
                for endpoint in endpoints
                if (state := self._carry_over(former, endpoint)) is not None
            }
            for model, endpoints in table.endpoints.items()
        }
        for state in former.values():
            state.pool.retire()
            _log.info("endpoint withdrawn", replica=state.endpoint.replica_id)
        self._retired = [state for state in self._retired if state.outstanding]
        self._retired += [state for state in former.values() if state.outstanding]

    def take(self, model: str, *, without: Collection[str] = ()) -> Attempt | None:
        """Choose an endpoint for a request and count it there; None if there is none."""
        states = self._by_model.get(model)
        if not states:
            return None
        now_s = self._clock.now_s()
        candidates = [state for name, state in states.items() if name not in without]
        for state in candidates:
            good = state.standing is GOOD_STANDING
            state.in_service = good or in_service(state.standing, now_s)
        self._turn += 1
        chosen = choose(candidates, self._turn)
        if chosen is None:
            return None
        chosen.standing, probe = on_chosen(chosen.standing, now_s)
        chosen.outstanding += 1
        return Attempt(self, chosen, probe=probe)

    def judge(self, state: EndpointState, verdict: Verdict, *, probe: bool) -> None:
        """Take a verdict on an endpoint into its standing."""
        before = state.standing
        if verdict is Verdict.SUCCESS and before is GOOD_STANDING:
            return
        after = on_verdict(before, verdict, self._clock.now_s(), self._policy, probe=probe)
        state.standing = after
        replica_id = state.endpoint.replica_id
        if after.ejected_until_s is not None and before.ejected_until_s is None:
            self._on_ejected(state.endpoint.model)
            _log.warning("endpoint ejected", replica=replica_id, failures=after.failures)
        elif before.ejected_until_s is not None and after.ejected_until_s is None:
            _log.info("endpoint back in service", replica=replica_id)

    def outstanding(self) -> Mapping[str, int]:
        """Requests under way per model, those at withdrawn endpoints included."""
        counts = {
            model: sum(state.outstanding for state in states.values())
            for model, states in self._by_model.items()
        }
        for state in self._retired:
            model = state.endpoint.model
            counts[model] = counts.get(model, 0) + state.outstanding
        return counts

    def ejected(self) -> Mapping[str, int]:
        """Endpoints out of service per model."""
        return {
            model: sum(state.standing.ejected_until_s is not None for state in states.values())
            for model, states in self._by_model.items()
        }

    def close(self) -> None:
        """Close every idle connection."""
        for states in self._by_model.values():
            for state in states.values():
                state.pool.retire()

    def _carry_over(
        self, former: dict[str, EndpointState], endpoint: Endpoint
    ) -> EndpointState | None:
        state = former.get(endpoint.replica_id)
        if state is not None and state.endpoint.url == endpoint.url:
            del former[endpoint.replica_id]
            state.adopt(endpoint)
            return state
        return self._new(endpoint)

    def _new(self, endpoint: Endpoint) -> EndpointState | None:
        try:
            parts = urlsplit(endpoint.url)
            host, port = parts.hostname, parts.port or _HTTP_PORT
        except ValueError:
            host, port, parts = None, 0, urlsplit("")
        if parts.scheme != "http" or not host:
            _log.warning("endpoint unusable", replica=endpoint.replica_id, url=endpoint.url)
            return None
        return EndpointState(
            endpoint=endpoint,
            pool=Pool(host, port, self._clock),
            authority=parts.netloc.rpartition("@")[2].encode("latin-1", "replace"),
            path_prefix=parts.path.rstrip("/").encode("latin-1", "replace"),
        )
