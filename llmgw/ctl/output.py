"""How results look: tables that fit 80 columns, JSON, YAML.

A cell that is too wide is wrapped inside its column, never cut: reasons are there to be read.
Control characters that come from elsewhere are made visible, so that a log line quoted in a
reason cannot move the operator's cursor.
"""

from __future__ import annotations

import json
import textwrap
from enum import StrEnum
from typing import TYPE_CHECKING

import typer
import yaml

if TYPE_CHECKING:
    from collections.abc import Sequence

WIDTH_MAX = 80
_COLUMN_WIDTH_MIN = 5
_PROSE_WIDTH_MIN = 10
_LABEL_WIDTH = 11
_GAP = "  "
_KIB = 1024
_LINE_BREAKS = frozenset("\r\x85\u2028\u2029")


class Output(StrEnum):
    """The forms a result can be printed in."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


def print_data(data: object, output: Output) -> None:
    """Print a result for programs: JSON or YAML."""
    if output is Output.JSON:
        typer.echo(json.dumps(data, indent=2, ensure_ascii=False))
    else:
        typer.echo(to_yaml(data), nl=False)


def to_yaml(data: object) -> str:
    """YAML that `ctl apply` reads back as the same values: text like 1.10 is quoted."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=WIDTH_MAX)


class _Dumper(yaml.SafeDumper):
    """Writes text with unusual line breaks in double quotes: elsewhere they are read as blanks."""

    def represent_text(self, text: str) -> yaml.ScalarNode:
        style = '"' if _LINE_BREAKS.intersection(text) else None
        return self.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _Dumper.represent_text)


def print_line(text: str) -> None:
    """Print text that may be long, wrapped."""
    for line in textwrap.wrap(printable(text), WIDTH_MAX, subsequent_indent="  "):
        typer.echo(line)


def print_labelled(label: str, names: Sequence[str]) -> None:
    """Print names beside a label, wrapped in a column of their own; none is cut in two."""
    width = WIDTH_MAX - _LABEL_WIDTH
    text = printable(", ".join(names))
    lines = textwrap.wrap(text, width, break_on_hyphens=False, break_long_words=False)
    for number, line in enumerate(lines):
        typer.echo(f"{'' if number else label:<{_LABEL_WIDTH}}{line}")


def print_table(headers: Sequence[str], rows: Sequence[Sequence[object]], empty: str) -> None:
    """Print a table, or one line that says there is nothing."""
    typer.echo(render_table(headers, rows) if rows else empty)


def render_table(
    headers: Sequence[str], rows: Sequence[Sequence[object]], width: int = WIDTH_MAX
) -> str:
    """Lay out a table in at most `width` columns; empty cells show as `-`."""
    cells = [list(headers), *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(headers))]
    room = width - len(_GAP) * (len(headers) - 1)
    # The last column is prose and gives way first; names and addresses stay whole while they can.
    spare = max(0, widths[-1] - _PROSE_WIDTH_MIN)
    widths[-1] -= min(spare, max(0, sum(widths) - room))
    while sum(widths) > room and max(widths) > _COLUMN_WIDTH_MIN:
        widths[widths.index(max(widths))] -= 1
    return "\n".join(line for row in cells for line in _lines(row, widths))


def _lines(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    wrapped = [
        textwrap.wrap(text, width, break_on_hyphens=False) or [""]
        for text, width in zip(row, widths, strict=True)
    ]
    height = max(len(lines) for lines in wrapped)
    return [
        _GAP.join(
            (lines[index] if index < len(lines) else "").ljust(width)
            for lines, width in zip(wrapped, widths, strict=True)
        ).rstrip()
        for index in range(height)
    ]


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ", ".join(printable(str(item)) for item in value) or "-"
    return printable(str(value)) or "-"


def printable(text: str) -> str:
    """The text on one line, with anything that could steer a terminal made visible."""
    line = " ".join(text.split())
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in line)


def gibibytes(value: object) -> str:
    """A number of bytes in GiB; unknown is `-`."""
    return f"{value / _KIB**3:.1f} GiB" if isinstance(value, int) else "-"
