"""How figures are shown: medians, the worst, how many tries, and on what machine."""

from __future__ import annotations

import os
import platform
import statistics
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

TRIES_FOR_P99 = 300


def machine() -> str:
    """One line about where the figures were taken."""
    cpu = platform.processor() or platform.machine()
    return (
        f"{os.cpu_count()} cores ({cpu}), Python {platform.python_version()}, {platform.system()}"
    )


def spread(values_s: Sequence[float]) -> str:
    """Median and worst of some times in seconds; p99 only when there are enough of them."""
    ordered = sorted(values_s)
    text = f"median {_shown(statistics.median(ordered))}"
    if len(ordered) >= TRIES_FOR_P99:
        text += f", p99 {_shown(ordered[int(len(ordered) * 0.99)])}"
    return f"{text}, worst of {len(ordered)} {_shown(ordered[-1])}"


def _shown(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.1f} ms"


def line(what: str, figure: str, beside: str = "") -> None:
    """Print one figure, and what it stands beside."""
    print(f"  {what:<44} {figure}" + (f"   [{beside}]" if beside else ""), flush=True)
