"""Tables fit 80 columns and lose nothing; a terminal cannot be steered by what is shown."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from llmgw.ctl.output import WIDTH_MAX, printable, render_table

CELLS = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=120)


def test_a_small_table_is_aligned() -> None:
    table = render_table(("NAME", "N"), [("a", 1), ("longer", None)])
    assert table.splitlines() == ["NAME    N", "a       1", "longer  -"]


def test_a_long_reason_is_wrapped_inside_its_column() -> None:
    reason = "engine sglang is not installed on node-1; no room for 24 GB on node-2, node-3 is lost"
    table = render_table(("MODEL", "REASON"), [("org/model", reason)])
    lines = table.splitlines()
    assert all(len(line) <= WIDTH_MAX for line in lines)
    assert " ".join(line[11:] for line in lines[1:]) == reason
    assert len(lines) == 3


def test_names_and_addresses_stay_whole_while_the_reason_can_give_way() -> None:
    row = ("smollm2-1dc7a85d", "smollm2", "ready", "node-1", 8133, "127.36.184.1:20000", "why " * 9)
    table = render_table(("REPLICA", "MODEL", "STATE", "NODE", "PID", "ENDPOINT", "REASON"), [row])
    assert all(len(line) <= WIDTH_MAX for line in table.splitlines())
    assert "127.36.184.1:20000" in table
    assert "smollm2-1dc7a85d" in table


@given(st.lists(st.lists(CELLS, min_size=7, max_size=7), min_size=1, max_size=4))
def test_every_table_fits_and_loses_nothing(rows: list[list[str]]) -> None:
    headers = ["REPLICA", "MODEL", "STATE", "NODE", "PID", "ENDPOINT", "REASON"]
    table = render_table(headers, rows)
    assert all(len(line) <= WIDTH_MAX for line in table.splitlines())
    shown = sorted(re.sub(r"\s", "", table))
    cells = [(cell.strip() and cell) or "-" for row in rows for cell in row]
    assert shown == sorted(re.sub(r"\s", "", "".join([*headers, *cells])))


def test_values_are_shown_as_people_write_them() -> None:
    table = render_table(("A", "B", "C", "D"), [(True, ["x", "y"], [], 0)])
    assert table.splitlines()[1].split() == ["yes", "x,", "y", "-", "0"]


def test_control_characters_are_made_visible() -> None:
    """A reason may quote what an engine printed."""
    assert printable("\x1b[2Jgone\x07") == "\\x1b[2Jgone\\x07"
    assert printable("two\nlines\tand more") == "two lines and more"
    assert "\x1b" not in render_table(("R",), [("\x1b[31mred",)])
