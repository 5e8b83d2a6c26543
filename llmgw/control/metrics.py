"""What `/metrics` says: read from the control plane at every scrape, never kept beside it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from ha.elector import Role
from llmgw.control.core.replicas import group

if TYPE_CHECKING:
    from collections.abc import Iterator

    from llmgw.control.plane import ControlPlane


def render(plane: ControlPlane) -> bytes:
    """All metrics in Prometheus' text form."""
    registry = CollectorRegistry()
    registry.register(_Planes(plane))
    return generate_latest(registry)


class _Planes(Collector):
    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        plane = self._plane
        leading = plane.elector.role is Role.LEADING
        yield _gauge("llmgw_leader", "1 while this control plane leads", leading)
        yield _gauge("llmgw_term", "own term while leading, else the highest seen",
                     plane.elector.term)  # fmt: skip
        revision = plane.view.catalog.revision if plane.view.catalog is not None else 0
        yield _gauge("llmgw_catalog_revision", "store revision of the catalog in force", revision)
        yield _gauge(
            "llmgw_catalog_invalid",
            "1 while the catalog in etcd cannot be used and the last good one stays",
            bool(plane.view.problem),
        )
        yield _gauge(
            "llmgw_watch_staleness_seconds",
            "how old the view of the catalog may be",
            plane.view.watcher.staleness_s(),
        )
        yield _gauge(
            "llmgw_watch_resyncs", "how often it was listed anew", plane.view.watcher.resyncs
        )
        yield _gauge("llmgw_etcd_version_warning", "1: this etcd version has known lease faults",
                     bool(plane.warnings))  # fmt: skip
        refusals = CounterMetricFamily(
            "llmgw_agent_refusals", "agent streams refused or closed, by kind", labels=["kind"]
        )
        for kind, count in sorted(plane.leader.refusals.items(), key=lambda item: item[0].value):
            refusals.add_metric([kind.value], count)
        yield refusals
        term = plane.leader.term
        connected = len(term.sessions.connected) if term is not None else 0
        yield _gauge("llmgw_agents_connected", "agents attached to this control plane", connected)
        replicas = GaugeMetricFamily(
            "llmgw_replicas", "replicas by model and state", labels=["model", "state"]
        )
        if term is not None:
            states = Counter((r.head.spec.model, str(r.state)) for r in group(term.fleet))
            for (model, state), count in sorted(states.items()):
                replicas.add_metric([model, state], count)
        yield replicas


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, value=float(value))
