"""Small tools every program uses: time for display, settings, logs, journals, tasks, TLS files."""

from __future__ import annotations

import datetime as dt


def wall_now() -> dt.datetime:
    """The wall clock, in UTC, for display and records only: it steps, and decides nothing."""
    return dt.datetime.now(dt.UTC)  # noqa: TID251 - the one place that may
