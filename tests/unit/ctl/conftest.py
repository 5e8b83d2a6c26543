"""Fake control planes, and the command line run in this process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from llmgw import cli
from tests.support.fake_admin import FakeAdmin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass(frozen=True)
class Result:
    """One command line, run to its end."""

    code: int
    out: str
    err: str


@pytest.fixture
def planes() -> Iterator[tuple[FakeAdmin, FakeAdmin]]:
    """Two control planes."""
    made = FakeAdmin(), FakeAdmin()
    yield made
    for fake in made:
        fake.stop()


@pytest.fixture
def plane(planes: tuple[FakeAdmin, FakeAdmin]) -> FakeAdmin:
    """One control plane."""
    return planes[0]


@pytest.fixture
def ctl(
    plane: FakeAdmin, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Result]:
    """Run `llmgw ctl` against the first control plane."""
    monkeypatch.setenv("LLMGW_ADMIN", plane.url)

    def run(*arguments: str) -> Result:
        code = cli.run(["ctl", *arguments])
        out, err = capsys.readouterr()
        return Result(code, out, err)

    return run
