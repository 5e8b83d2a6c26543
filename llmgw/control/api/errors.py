"""What an admin request can be refused with."""

from __future__ import annotations

from typing import Any

from llmgw.control.errors import ControlError


class ApiError(ControlError):
    """An answer other than success: HTTP status, a code for programs, a message for people."""

    def __init__(self, status: int, code: str, message: str, **details: Any) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.details = details
