"""Logs: structlog, as JSON lines or for a console, to standard error."""

from __future__ import annotations

import contextlib
import io
import logging
import sys
from typing import Literal, TextIO, cast

import structlog

LogFormat = Literal["console", "json"]


def configure_logs(program: str, log_format: LogFormat = "console", level: str = "INFO") -> None:
    """Set up logging of this process; every line carries the program's name."""
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if log_format == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), pad_event_to=0)
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(level)),
        logger_factory=structlog.PrintLoggerFactory(cast("TextIO", _StandardError())),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(program=program)
    logging.basicConfig(level=level, handlers=[_Forward()], force=True)


class _StandardError(io.TextIOBase):
    """Standard error as it is now: a logger may outlive a stream that replaced it for a while.

    Where nothing can be written (a full disk, a reader that has gone) lines are lost. An error
    would end whatever just wanted to say something.
    """

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError, ValueError):
            return sys.stderr.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()


class _Forward(logging.Handler):
    """Lines of the standard library's loggers, which `ha` uses, in the same form as all others."""

    def emit(self, record: logging.LogRecord) -> None:
        structlog.get_logger(module=record.name).log(record.levelno, record.getMessage())


def get_logger(name: str) -> structlog.typing.FilteringBoundLogger:
    """A logger that names its module."""
    logger: structlog.typing.FilteringBoundLogger = structlog.get_logger(module=name)
    return logger
