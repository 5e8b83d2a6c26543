"""Settings: flags beat the environment, which beats the file, which beats defaults."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pydantic import Field

from llmgw.kit.settings import Settings, SettingsError, load_settings

if TYPE_CHECKING:
    from pathlib import Path


class Example(Settings):
    """Settings of some program."""

    node_id: str = "default"
    lease_ttl_s: float = 5.0
    etcd: list[str] = Field(default=[])
    labels: tuple[str, ...] = ()


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "llmgw.toml"
    path.write_text('node_id = "file"\nlease_ttl_s = 7\netcd = ["a:1", "b:2"]\n')
    return path


def test_each_source_beats_the_next_one(config: Path) -> None:
    environment = {"LLMGW_NODE_ID": "environment"}
    flags = {"node_id": "flag"}
    assert load_settings(Example, {}, environment={}).node_id == "default"
    assert load_settings(Example, {}, config=config, environment={}).node_id == "file"
    loaded = load_settings(Example, {}, config=config, environment=environment)
    assert loaded.node_id == "environment"
    loaded = load_settings(Example, flags, config=config, environment=environment)
    assert loaded.node_id == "flag"


def test_a_source_hides_only_what_it_sets(config: Path) -> None:
    loaded = load_settings(
        Example, {"node_id": "flag"}, config=config, environment={"LLMGW_LEASE_TTL_S": "9"}
    )
    assert (loaded.node_id, loaded.lease_ttl_s, loaded.etcd) == ("flag", 9.0, ["a:1", "b:2"])


@pytest.mark.parametrize("absent", [None, []])
def test_a_flag_that_was_not_given_hides_nothing(absent: object) -> None:
    environment = {"LLMGW_NODE_ID": "environment", "LLMGW_ETCD": "a:1"}
    loaded = load_settings(Example, {"node_id": None, "etcd": absent}, environment=environment)
    assert (loaded.node_id, loaded.etcd) == ("environment", ["a:1"])


def test_false_and_zero_are_given_values() -> None:
    loaded = load_settings(Example, {"lease_ttl_s": 0}, environment={"LLMGW_LEASE_TTL_S": "9"})
    assert loaded.lease_ttl_s == 0


def test_a_list_in_the_environment_is_comma_separated() -> None:
    environment = {"LLMGW_ETCD": "a:1, b:2,,", "LLMGW_LABELS": "x=1,y=2"}
    loaded = load_settings(Example, {}, environment=environment)
    assert loaded.etcd == ["a:1", "b:2"]
    assert loaded.labels == ("x=1", "y=2")


def test_the_environment_of_this_process_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLMGW_NODE_ID", "from here")
    assert load_settings(Example, {}).node_id == "from here"


@pytest.mark.parametrize(
    ("flags", "environment", "named"),
    [
        ({"lease_ttl_s": "x"}, {}, "--lease-ttl-s"),
        ({}, {"LLMGW_LEASE_TTL_S": "x"}, "LLMGW_LEASE_TTL_S"),
    ],
)
def test_a_bad_value_is_refused_with_the_place_it_came_from(
    flags: dict[str, object], environment: dict[str, str], named: str
) -> None:
    with pytest.raises(SettingsError, match=named):
        load_settings(Example, flags, environment=environment)


def test_a_bad_value_in_a_file_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text('lease_ttl_s = "x"\n')
    with pytest.raises(SettingsError, match=f"{path}: lease_ttl_s: "):
        load_settings(Example, {}, config=path, environment={})


def test_an_unknown_setting_of_a_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "typo.toml"
    path.write_text("lease_ttl = 5\n")
    with pytest.raises(SettingsError, match=f"{path}: lease_ttl: there is no such setting"):
        load_settings(Example, {}, config=path, environment={})


def test_all_bad_values_are_reported() -> None:
    with pytest.raises(SettingsError, match=r"(?s)--lease-ttl-s.*--etcd|--etcd.*--lease-ttl-s"):
        load_settings(Example, {"lease_ttl_s": "x", "etcd": 3}, environment={})


@pytest.mark.parametrize("content", [b"not toml", b"\xff\xfe", None])
def test_an_unreadable_file_is_named(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "broken.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SettingsError, match=str(path)):
        load_settings(Example, {}, config=path, environment={})
