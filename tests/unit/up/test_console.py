"""What `up` prints can be typed as it stands."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING

from llmgw.up.console import own_command

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_the_program_is_named_as_the_readers_shell_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert own_command(".venv/bin/llmgw") == ".venv/bin/llmgw"
    assert own_command("/my venv/llmgw") == "'/my venv/llmgw'"
    assert own_command("/x/llmgw/__main__.py") == f"{shlex.quote(sys.executable)} -m llmgw"
    program = tmp_path / "llmgw"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert own_command(".venv/bin/llmgw") == "llmgw"
