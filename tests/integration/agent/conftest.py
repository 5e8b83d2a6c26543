"""Fixtures of the agent's integration tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.agents import cleaned
from tests.support.fake_leader import FakeLeader

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest.fixture
async def state_dir(tmp_path: Path) -> AsyncIterator[Path]:
    """A state directory whose engines end with the test."""
    async with cleaned(tmp_path / "state") as path:
        path.mkdir()
        yield path


@pytest.fixture
async def leader() -> AsyncIterator[FakeLeader]:
    """A leader of term 5 on 127.0.0.1; `leader.address` is where."""
    leader = FakeLeader(term=5)
    await leader.start()
    yield leader
    await leader.stop()
