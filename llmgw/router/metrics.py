"""What the router counts, for Prometheus.

Models are labelled by their catalog name; any other name is `other`, so that no client can mint
a series.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from prometheus_client.metrics_core import Metric

OTHER = "other"
CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
_FIRST_BYTE_BUCKETS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_BETWEEN_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60)


# A second series for each one, of when it was first counted: nobody reads it.
disable_created_metrics()  # type: ignore[no-untyped-call]


class Metrics:
    """The metrics of one router."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "llmgw_router_requests",
            "Requests answered, by model and HTTP status (499: the client left).",
            ("model", "code"),
            registry=self.registry,
        )
        self._first_byte = Histogram(
            "llmgw_router_time_to_first_token_seconds",
            "From the whole request to the first byte of the engine's answer body.",
            ("model",),
            buckets=_FIRST_BYTE_BUCKETS_S,
            registry=self.registry,
        )
        self._between = Histogram(
            "llmgw_router_inter_token_latency_seconds",
            "Between two pieces of a streamed answer.",
            ("model",),
            buckets=_BETWEEN_BUCKETS_S,
            registry=self.registry,
        )
        self._ejections = Counter(
            "llmgw_router_ejections",
            "Endpoints taken out of service after consecutive failures.",
            ("model",),
            registry=self.registry,
        )

    def request(self, model: str, code: int) -> None:
        """Count one request."""
        self._requests.labels(model, str(code)).inc()

    def first_byte(self, model: str, after_s: float) -> None:
        """Observe the time to the first byte."""
        self._first_byte.labels(model).observe(after_s)

    def between(self, model: str) -> Callable[[float], None]:
        """What observes the times between pieces of one stream."""
        return self._between.labels(model).observe

    def ejection(self, model: str) -> None:
        """Count one ejection."""
        self._ejections.labels(model).inc()

    def gauge(
        self, name: str, text: str, label: str, read: Callable[[], Mapping[str, float]]
    ) -> None:
        """Add a gauge whose values are read when they are asked for."""
        self.registry.register(_Read(name, text, label, read))

    def text(self) -> bytes:
        """The exposition."""
        return generate_latest(self.registry)


class _Read(Collector):
    def __init__(
        self, name: str, text: str, label: str, read: Callable[[], Mapping[str, float]]
    ) -> None:
        self._name, self._text, self._label, self._read = name, text, label, read

    def collect(self) -> Iterator[Metric]:
        family = GaugeMetricFamily(self._name, self._text, labels=(self._label,))
        for value, number in self._read().items():
            family.add_metric((value,), number)
        yield family
