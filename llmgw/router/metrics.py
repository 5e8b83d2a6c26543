"""What the router counts, for Prometheus.

Models are labelled by their catalog name; any other name is `other`, so that no client can mint
a series. Counting is done by one thread, per request and per token: plain numbers, turned into
Prometheus's form when they are asked for.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from prometheus_client.metrics_core import Metric

OTHER = "other"
CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
_FIRST_BYTE_BUCKETS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_BETWEEN_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60)


class Metrics:
    """The metrics of one router."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = _Counter(
            "llmgw_router_requests",
            "Requests answered, by model and HTTP status (499: the client left).",
            ("model", "code"),
        )
        self._first_byte = _Histograms(
            "llmgw_router_time_to_first_token_seconds",
            "From the whole request to the first byte of the engine's answer body.",
            _FIRST_BYTE_BUCKETS_S,
        )
        self._between = _Histograms(
            "llmgw_router_inter_token_latency_seconds",
            "Between two pieces of a streamed answer.",
            _BETWEEN_BUCKETS_S,
        )
        self._ejections = _Counter(
            "llmgw_router_ejections",
            "Endpoints taken out of service after consecutive failures.",
            ("model",),
        )
        for collector in (self._requests, self._first_byte, self._between, self._ejections):
            self.registry.register(collector)

    def request(self, model: str, code: int) -> None:
        """Count one request."""
        self._requests.count((model, str(code)))

    def first_byte(self, model: str, after_s: float) -> None:
        """Observe the time to the first byte."""
        self._first_byte.of(model).observe(after_s)

    def between(self, model: str) -> Callable[[float], None]:
        """What observes the times between pieces of one stream."""
        return self._between.of(model).observe

    def ejection(self, model: str) -> None:
        """Count one ejection."""
        self._ejections.count((model,))

    def gauge(
        self, name: str, text: str, label: str, read: Callable[[], Mapping[str, float]]
    ) -> None:
        """Add a gauge whose values are read when they are asked for."""
        self.registry.register(_Read(name, text, label, read))

    def text(self) -> bytes:
        """The exposition."""
        return generate_latest(self.registry)


class _Counter(Collector):
    def __init__(self, name: str, text: str, labels: tuple[str, ...]) -> None:
        self._name, self._text, self._labels = name, text, labels
        self._counts: dict[tuple[str, ...], int] = {}

    def count(self, values: tuple[str, ...]) -> None:
        self._counts[values] = self._counts.get(values, 0) + 1

    def collect(self) -> Iterator[Metric]:
        family = CounterMetricFamily(self._name, self._text, labels=self._labels)
        for values, count in self._counts.items():
            family.add_metric(values, count)
        yield family


class _Histogram:
    """The times of one model, each counted in the first bucket that holds it."""

    def __init__(self, buckets_s: tuple[float, ...]) -> None:
        self.buckets_s = buckets_s
        self.counts = [0] * (len(buckets_s) + 1)
        self.sum_s = 0.0

    def observe(self, value_s: float) -> None:
        self.counts[bisect_left(self.buckets_s, value_s)] += 1
        self.sum_s += value_s


class _Histograms(Collector):
    def __init__(self, name: str, text: str, buckets_s: tuple[float, ...]) -> None:
        self._name, self._text, self._buckets_s = name, text, buckets_s
        self._by_model: dict[str, _Histogram] = {}

    def of(self, model: str) -> _Histogram:
        histogram = self._by_model.get(model)
        if histogram is None:
            histogram = self._by_model[model] = _Histogram(self._buckets_s)
        return histogram

    def collect(self) -> Iterator[Metric]:
        family = HistogramMetricFamily(self._name, self._text, labels=("model",))
        bounds = [*(str(float(bound)) for bound in self._buckets_s), "+Inf"]
        for model, histogram in self._by_model.items():
            buckets = list(zip(bounds, accumulate(histogram.counts), strict=True))
            family.add_metric((model,), buckets, histogram.sum_s)
        yield family


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
