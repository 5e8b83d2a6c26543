"""Logs: on standard error, naming the program, one JSON object a line when asked."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import sys
from typing import TYPE_CHECKING

import pytest
import structlog

from llmgw.kit.logs import configure_logs, get_logger

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def fresh_structlog() -> Iterator[None]:
    yield
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


def test_json_lines_carry_program_module_and_level(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("agent", "json")
    get_logger("llmgw.agent.session").warning("detached", term=3)
    out, err = capsys.readouterr()
    assert out == ""
    record = json.loads(err)
    assert record.pop("timestamp").endswith("Z")
    assert record == {
        "event": "detached",
        "level": "warning",
        "module": "llmgw.agent.session",
        "program": "agent",
        "term": 3,
    }


def test_an_exception_is_one_line_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("agent", "json")
    try:
        int("boom")
    except ValueError:
        get_logger("x").exception("failed")
    (line,) = capsys.readouterr().err.splitlines()
    assert "ValueError: invalid literal" in json.loads(line)["exception"]


def test_the_level_is_a_threshold(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("agent", "console", level="WARNING")
    get_logger("x").info("quiet")
    get_logger("x").warning("loud")
    err = capsys.readouterr().err
    assert "loud" in err
    assert "quiet" not in err


def test_console_lines_have_no_colours_in_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("agent")
    get_logger("x").info("plain")
    assert "\x1b" not in capsys.readouterr().err


def test_a_logger_outlives_a_stream_that_stood_in_for_standard_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Test runners replace the stream, and close it; nobody's log line may raise then."""
    stand_in, later = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stderr", stand_in)
    configure_logs("router", "json")
    log = get_logger("somewhere")
    log.info("before")
    monkeypatch.setattr(sys, "stderr", later)
    stand_in.close()
    log.info("after")
    assert "after" in later.getvalue()


def test_a_full_disk_under_standard_error_harms_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    with open("/dev/full", "w", buffering=1) as full:  # noqa: PTH123 - a device
        monkeypatch.setattr(sys, "stderr", full)
        configure_logs("agent", "json")
        get_logger("x").info("lost")
        logging.getLogger("ha").warning("lost too")
        with contextlib.suppress(OSError):
            full.close()
