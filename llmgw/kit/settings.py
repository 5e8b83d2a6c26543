"""Settings of a program: flags, then `LLMGW_*` environment, then a TOML file, then defaults.

Each program describes its settings as one pydantic model. The command line passes only the flags
that were given, so that a default of the command line never hides an environment variable.
"""

from __future__ import annotations

import os
import tomllib
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

ENVIRONMENT_PREFIX = "LLMGW_"


class Settings(BaseModel):
    """Base of every program's settings."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class SettingsError(ValueError):
    """A setting cannot be used; the message names it, where it came from, and why."""


S = TypeVar("S", bound=Settings)


def load_settings(
    kind: type[S],
    flags: Mapping[str, Any],
    *,
    config: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> S:
    """Merge all sources into one settings object.

    Args:
        kind: the settings model; its field names are the setting names.
        flags: values from the command line; `None` means "not given".
        config: a TOML file whose top-level keys are setting names.
        environment: defaults to this process's; `LLMGW_NODE_ID` sets `node_id`. A setting that
            is a list takes comma-separated text.

    Raises:
        SettingsError: an unknown or invalid setting, or an unreadable file.
    """
    merged: dict[str, Any] = {}
    source: dict[str, str] = {}
    if config is not None:
        for name, value in _read_toml(config).items():
            merged[name], source[name] = value, f"{config}: {name}"
    for name in kind.model_fields:
        variable = ENVIRONMENT_PREFIX + name.upper()
        text = (os.environ if environment is None else environment).get(variable)
        if text is not None:
            merged[name], source[name] = _split(kind, name, text), variable
    for name, value in flags.items():
        if value is not None and value != []:
            merged[name], source[name] = value, "--" + name.replace("_", "-")
    try:
        return kind.model_validate(merged)
    except ValidationError as error:
        lines = []
        for item in error.errors(include_url=False):
            name = str(item["loc"][0]) if item["loc"] else ""
            flag = "--" + name.replace("_", "-")
            message = item["msg"].removeprefix("Value error, ")
            if item["type"] == "extra_forbidden":
                message = "there is no such setting"
            # What concerns several settings together has no name, and says itself which.
            lines.append(f"{source.get(name, flag)}: {message}" if name else message)
        raise SettingsError("; ".join(lines)) from error


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"{path}: {error}") from error


def _split(kind: type[Settings], name: str, text: str) -> object:
    if str(kind.model_fields[name].annotation).startswith(("list", "tuple")):
        return [part.strip() for part in text.split(",") if part.strip()]
    return text
