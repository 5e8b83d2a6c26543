"""The copy on disk: what was sealed comes back; anything else is refused."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import stat
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import CapturingLogger

from llmgw.domain.endpoint import Endpoint
from llmgw.router import snapshot as module
from llmgw.router.errors import SnapshotError
from llmgw.router.snapshot import Snapshot, seal, unseal
from llmgw.router.table import RouteTable, make_table

if TYPE_CHECKING:
    from pathlib import Path

KEY = b"k" * 32
TABLE = make_table(
    {"org/m": "org/m", "alias": "org/m", "idle": "idle"},
    [
        Endpoint(
            replica_id="r1",
            url="http://[::1]:20000",
            model="org/m",
            aliases=("alias",),
            served_model_name="m",
            engine="vllm",
            weight=3,
            priority=1,
        )
    ],
)
SEALED = seal(KEY, "c", TABLE, "2026-01-01T00:00:00+00:00")


def test_what_was_sealed_comes_back() -> None:
    assert unseal(KEY, "c", SEALED) == (TABLE, "2026-01-01T00:00:00+00:00")


@settings(deadline=None)
@given(st.integers(0, len(SEALED) - 1), st.integers(1, 255))
def test_any_changed_byte_is_refused(position: int, change: int) -> None:
    damaged = bytearray(SEALED)
    damaged[position] ^= change
    if position == 64:
        return  # the line feed after the signature carries nothing
    with pytest.raises(SnapshotError, match="signature"):
        unseal(KEY, "c", bytes(damaged))


@settings(deadline=None)
@given(st.integers(0, len(SEALED) - 1))
def test_any_cut_is_refused(length: int) -> None:
    with pytest.raises(SnapshotError):
        unseal(KEY, "c", SEALED[:length])


def test_another_key_cluster_or_format_is_refused() -> None:
    with pytest.raises(SnapshotError, match="signature"):
        unseal(b"x" * 32, "c", SEALED)
    with pytest.raises(SnapshotError, match="cluster 'c'"):
        unseal(KEY, "d", SEALED)


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"format": 2}', b"\xff"])
def test_signed_nonsense_is_refused_too(content: bytes) -> None:
    signature = hmac.new(KEY, content, hashlib.sha256).hexdigest().encode()
    with pytest.raises(SnapshotError):
        unseal(KEY, "c", signature + b"\n" + content)


async def _saved(folder: Path, table: RouteTable = TABLE) -> None:
    snapshot = Snapshot(folder, "c")
    snapshot.offer(table)
    snapshot.flush()


async def test_a_copy_is_found_again_and_its_key_is_private(tmp_path: Path) -> None:
    await _saved(tmp_path)
    assert Snapshot(tmp_path, "c").load() == TABLE
    for name in ("routes.key", "routes.signed"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600


async def test_no_copy_is_no_error(tmp_path: Path) -> None:
    assert Snapshot(tmp_path / "nowhere", "c").load() is None


@pytest.mark.parametrize("fault", ["changed", "no key", "open key", "short key", "a folder"])
async def test_an_untrustworthy_copy_is_refused_and_said(
    tmp_path: Path, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = CapturingLogger()
    monkeypatch.setattr(module, "_log", log)
    await _saved(tmp_path)
    copy, key = tmp_path / "routes.signed", tmp_path / "routes.key"
    if fault == "changed":
        copy.write_bytes(copy.read_bytes().replace(b"20000", b"20001"))
    elif fault == "no key":
        key.unlink()
    elif fault == "open key":
        key.chmod(0o644)
    elif fault == "short key":
        key.write_bytes(b"k")
    else:
        copy.unlink()
        copy.mkdir()
    assert Snapshot(tmp_path, "c").load() is None
    assert [(call.method_name, call.kwargs["path"]) for call in log.calls] == [("error", str(copy))]


async def test_a_key_that_cannot_be_trusted_is_replaced_at_the_next_writing(tmp_path: Path) -> None:
    await _saved(tmp_path)
    (tmp_path / "routes.key").chmod(0o644)
    await _saved(tmp_path)
    assert stat.S_IMODE((tmp_path / "routes.key").stat().st_mode) == 0o600
    assert Snapshot(tmp_path, "c").load() == TABLE


async def test_an_unchanged_table_is_not_written_again(tmp_path: Path) -> None:
    await _saved(tmp_path)
    snapshot = Snapshot(tmp_path, "c")
    snapshot.load()
    (tmp_path / "routes.signed").unlink()
    snapshot.offer(make_table(dict(TABLE.names), TABLE.endpoints["org/m"]))
    snapshot.flush()
    assert not (tmp_path / "routes.signed").exists()


async def test_many_changes_are_one_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[bytes] = []
    wrote = asyncio.Event()
    loop = asyncio.get_running_loop()

    def write(_path: Path, content: bytes, *, mode: int) -> None:
        assert mode == 0o600
        written.append(content)
        loop.call_soon_threadsafe(wrote.set)

    monkeypatch.setattr(module, "SAVE_DEBOUNCE_S", 0.05)
    monkeypatch.setattr(module, "write_atomically", write)
    monkeypatch.setattr(Snapshot, "_make_key", lambda _self: KEY)
    snapshot = Snapshot(tmp_path, "c")
    running = asyncio.create_task(snapshot.run())
    for number in range(100):
        snapshot.offer(make_table({f"m{number}": f"m{number}"}, []))
    async with asyncio.timeout(5):
        await wrote.wait()
    running.cancel()
    assert [json.loads(one[65:])["names"] for one in written] == [{"m99": "m99"}]


async def test_a_disk_that_fails_is_said_and_not_fatal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = CapturingLogger()
    monkeypatch.setattr(module, "_log", log)
    (tmp_path / "file").write_text("")
    snapshot = Snapshot(tmp_path / "file", "c")
    snapshot.offer(TABLE)
    snapshot.flush()
    assert [call.args for call in log.calls] == [("route table not written",)]
