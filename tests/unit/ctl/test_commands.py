"""The operator's commands, from the command line to the request and back."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.support.fake_admin import not_leader

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.fake_admin import FakeAdmin

MODEL = {
    "name": "org/m",
    "aliases": ["1.10", "no"],
    "replicas": 2,
    "pool": "",
    "weight": 1,
    "model_path": "/m.gguf",
    "served_model_name": "",
    "profiles": [{"name": "cpu", "engine": "llamacpp", "tp": 1, "args": ["--seed", "42"]}],
}
NODE = {
    "node_id": "node-1",
    "connected": True,
    "state": "ready",
    "hostname": "h",
    "address": "127.0.1.1",
    "last_heard_s": 0.42,
    "pool": "",
    "cpus": 2,
    "memory_total_bytes": 8 * 2**30,
    "load": {"cpu_percent": 12.3},
    "engines": [],
    "shards": 1,
    "problems": ["a GPU fell out"],
}
REPLICA = {
    "replica_id": "org%2Fm-1",
    "model": "org/m",
    "profile": "cpu",
    "state": "failed",
    "node": "node-1",
    "pid": 4242,
    "process_start_ticks": 1,
    "endpoint": "http://127.0.1.1:20000",
    "reason": "/m.gguf does not exist",
    "restarts": 1,
    "shards": [],
}
STATUS: dict[str, Any] = {
    "cluster": "default",
    "id": "cp-1",
    "role": "standby",
    "term": 3,
    "leader": {"id": "cp-2", "term": 3, "agent_address": "a:1", "admin_address": "b:2"},
    "control_planes": [
        {"id": "cp-1", "role": "standby", "agent_address": "a:1", "admin_address": "b:1"},
        {"id": "cp-2", "role": "leading", "agent_address": "a:2", "admin_address": "b:2"},
    ],
    "settling": True,
    "catalog_revision": 17,
    "problems": ["etcd 3.4.23 has lease faults: " + "upgrade it, " * 10],
    "agents": [NODE],
    "models": [
        {
            "name": "org/m",
            "aliases": ["m"],
            "replicas_wanted": 2,
            "replicas_ready": 1,
            "reason": "node-2 is lost",
        }
    ],
    "replicas": [REPLICA],
}
CHANGES = {"revision": 18, "added": ["org/m"], "changed": [], "removed": ["old"], "unchanged": []}
FILE = "name: org/m\nprofiles: [{name: cpu, engine: llamacpp}]\n"


class Catalog:
    """A catalog behind a fake control plane, with the compare-and-swap of the real one."""

    def __init__(self, plane: FakeAdmin) -> None:
        self.revision = 7
        self.requests: list[Any] = []
        plane.answers["GET /v1/catalog"] = self._get
        plane.answers["POST /v1/catalog/apply"] = self._apply

    def _get(self, _: Any) -> tuple[int, Any]:
        return 200, {"revision": self.revision, "who": "", "when": "", "models": [MODEL]}

    def _apply(self, request: Any) -> tuple[int, Any]:
        self.requests.append(request)
        if request["expected_revision"] not in (None, self.revision):
            error = {"code": "conflict", "message": "it is at 7 now", "revision": self.revision}
            return 409, {"error": error}
        self.revision += 1
        return 200, {**CHANGES, "revision": self.revision}


@pytest.fixture
def catalog(plane: FakeAdmin) -> Catalog:
    return Catalog(plane)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "catalog.yaml"
    path.write_text(FILE)
    return path


def test_status_is_one_page_that_fits_80_columns(plane: FakeAdmin, ctl: Callable[..., Any]) -> None:
    plane.on("GET /v1/status", 200, STATUS)
    result = ctl("status")
    assert result.code == 0
    for said in (
        "cp-2 leads (term 3), settling, catalog revision 17",
        "problem: etcd 3.4.23 has lease faults",
        "node-1: a GPU fell out",
        "node-2 is lost",
        "1/2",
        "4242",
    ):
        assert said in result.out
    assert all(len(line) <= 80 for line in result.out.splitlines())


@pytest.mark.parametrize(("output", "load"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_status_for_programs_is_what_the_control_plane_said(
    plane: FakeAdmin, ctl: Callable[..., Any], output: str, load: Any
) -> None:
    plane.on("GET /v1/status", 200, STATUS)
    assert load(ctl("status", "-o", output).out) == STATUS


def test_status_without_a_leader_shows_what_is_known_and_fails(
    plane: FakeAdmin, ctl: Callable[..., Any]
) -> None:
    unknown = {"leader": None, "agents": None, "models": None, "replicas": None, "settling": None}
    plane.on("GET /v1/status", 200, {**STATUS, **unknown})
    result = ctl("status")
    assert result.code == 1
    assert "nobody leads" in result.out
    assert "nodes: unknown" in result.out
    assert result.err == "error: no control plane leads at the moment\n"


@pytest.mark.parametrize(
    ("verb", "row", "shown"),
    [
        ("nodes", NODE, "127.0.1.1"),
        ("replicas", REPLICA, "/m.gguf does"),
        ("models", STATUS["models"][0], "node-2 is lost"),
    ],
)
def test_lists(plane: FakeAdmin, ctl: Callable[..., Any], verb: str, row: Any, shown: str) -> None:
    plane.on(f"GET /v1/{verb}", 200, {verb: [row]})
    assert shown in ctl(verb).out
    assert json.loads(ctl(verb, "-o", "json").out) == {verb: [row]}
    plane.on(f"GET /v1/{verb}", 200, {verb: []})
    assert ctl(verb).out == f"no {verb}\n"


def test_apply_reads_the_current_revision_first(
    catalog: Catalog, file: Path, ctl: Callable[..., Any]
) -> None:
    result = ctl("apply", "-f", str(file))
    assert result.code == 0
    (request,) = catalog.requests
    assert request["expected_revision"] == 7
    assert request["prune"] is False
    assert request["who"]
    assert [model["name"] for model in request["models"]] == ["org/m"]
    assert result.out.splitlines() == [
        "added      org/m",
        "removed    old",
        "catalog revision 8 is in force",
    ]


def test_apply_prunes_only_when_told(catalog: Catalog, file: Path, ctl: Callable[..., Any]) -> None:
    ctl("apply", "-f", str(file), "--prune")
    assert catalog.requests[0]["prune"] is True


def test_apply_of_an_old_file_is_a_conflict_unless_forced(
    catalog: Catalog, file: Path, ctl: Callable[..., Any]
) -> None:
    file.write_text(f"revision: 6\nmodels:\n- {json.dumps(yaml.safe_load(FILE))}\n")
    result = ctl("apply", "-f", str(file))
    assert result.code == 3
    assert "it is at 7 now" in result.err
    assert "--force" in result.err
    assert catalog.revision == 7
    assert ctl("apply", "--force", "-f", str(file)).code == 0
    assert [request["expected_revision"] for request in catalog.requests] == [6, None]


def test_get_prints_a_file_that_apply_takes_back(
    catalog: Catalog, file: Path, ctl: Callable[..., Any]
) -> None:
    printed = ctl("get", "-o", "yaml")
    assert printed.code == 0
    file.write_text(printed.out)
    assert ctl("apply", "-f", str(file)).code == 0
    (request,) = catalog.requests
    assert request["expected_revision"] == 7
    (model,) = request["models"]
    assert model == {
        "name": "org/m",
        "aliases": ["1.10", "no"],
        "replicas": 2,
        "model_path": "/m.gguf",
        "profiles": [{"name": "cpu", "engine": "llamacpp", "args": ["--seed", "42"]}],
    }
    # The catalog has moved on: the same file again would overwrite what it has not seen.
    assert ctl("apply", "-f", str(file)).code == 3


def test_get_by_alias_and_as_a_table(catalog: Catalog, ctl: Callable[..., Any]) -> None:
    del catalog
    assert yaml.safe_load(ctl("get", "no").out)["models"][0]["name"] == "org/m"
    assert "cpu (llamacpp)" in ctl("get", "-o", "table").out


def test_get_of_an_unknown_name_prints_nothing_and_exits_4(
    catalog: Catalog, ctl: Callable[..., Any]
) -> None:
    del catalog
    result = ctl("get", "org/m", "nosuch")
    assert (result.code, result.out) == (4, "")
    assert result.err == "error: no model is called nosuch\n"


def test_a_wrong_file_is_refused_before_anything_is_sent(
    plane: FakeAdmin, file: Path, ctl: Callable[..., Any]
) -> None:
    file.write_text(FILE.replace("org/m", "1.10"))
    result = ctl("apply", "-f", str(file))
    assert result.code == 2
    assert f"{file}:1: models[0].name: expected text" in result.err
    assert result.err.splitlines()[-1].startswith("error: ")
    assert plane.asked == []


def test_what_the_control_plane_refuses_is_shown_at_its_line(
    plane: FakeAdmin, catalog: Catalog, file: Path, ctl: Callable[..., Any]
) -> None:
    del catalog
    problems = [{"path": ["models", 0, "profiles", 0, "engine"], "reason": "taken by 'x'"}]
    error = {"code": "invalid", "message": "no", "problems": problems}
    plane.on("POST /v1/catalog/apply", 422, {"error": error})
    result = ctl("apply", "-f", str(file))
    assert result.code == 2
    assert f"{file}:2: models[0].profiles[0].engine: taken by 'x'\n" in result.err


@pytest.mark.parametrize("name", ["/no/such/file.yaml", "/"])
def test_a_file_that_cannot_be_read_is_named(name: str, ctl: Callable[..., Any]) -> None:
    result = ctl("apply", "-f", name)
    assert result.code == 2
    assert result.err.startswith(f"error: {name}: ")


def test_delete(plane: FakeAdmin, ctl: Callable[..., Any]) -> None:
    plane.on("POST /v1/catalog/delete", 200, {"revision": 9, "removed": ["a", "b"]})
    assert ctl("delete", "a", "b").code == 0
    assert plane.asked[0][1]["names"] == ["a", "b"]
    error = {"code": "model_not_found", "message": "no model is called c", "names": ["c"]}
    plane.on("POST /v1/catalog/delete", 404, {"error": error})
    result = ctl("delete", "c")
    assert (result.code, result.err) == (4, "error: no model is called c\n")


def test_leader_and_resign(plane: FakeAdmin, ctl: Callable[..., Any]) -> None:
    plane.on("GET /v1/status", 200, STATUS)
    plane.on("POST /v1/leader/resign", 200, {"id": "cp-2", "term": 3})
    assert json.loads(ctl("leader", "-o", "json").out) == STATUS["leader"]
    assert "cp-2" in ctl("leader").out
    assert "cp-2 gave up" in ctl("leader", "resign", "--reason", "maintenance").out
    assert plane.asked[-1] == ("POST /v1/leader/resign", {"reason": "maintenance"})
    plane.on("GET /v1/status", 200, {**STATUS, "leader": None})
    assert ctl("leader").code == 1


def test_schema_is_json(plane: FakeAdmin, ctl: Callable[..., Any]) -> None:
    plane.on("GET /v1/schema", 200, {"type": "object"})
    assert json.loads(ctl("schema").out) == {"type": "object"}


@pytest.mark.parametrize("before", [True, False])
def test_admin_may_stand_before_or_after_the_verb(
    planes: tuple[FakeAdmin, FakeAdmin], ctl: Callable[..., Any], before: bool
) -> None:
    planes[1].on("GET /v1/nodes", 200, {"nodes": []})
    flag = ["--admin", planes[1].address]
    assert ctl(*flag, "nodes").code == 0 if before else ctl("nodes", *flag).code == 0
    assert planes[0].asked == []


def test_a_bad_admin_address_is_bad_input(ctl: Callable[..., Any]) -> None:
    result = ctl("nodes", "--admin", "ftp://x")
    assert (result.code, result.err) == (
        2,
        "error: --admin ftp://x: expected http://HOST:PORT\n",
    )


def test_a_standby_is_enough_to_write(
    planes: tuple[FakeAdmin, FakeAdmin], ctl: Callable[..., Any]
) -> None:
    planes[0].answers["POST /v1/catalog/delete"] = lambda _: not_leader(planes[1])
    planes[1].on("POST /v1/catalog/delete", 200, {"revision": 9, "removed": ["a"]})
    assert ctl("delete", "a").code == 0


@pytest.mark.parametrize("output", ["table", "json"])
def test_a_routers_list_of_models_is_not_taken_for_the_catalogs(
    output: str, plane: FakeAdmin, ctl: Callable[..., Any]
) -> None:
    """Both answer `/v1/models`; "no models" would be a lie."""
    plane.on("GET /v1/models", 200, {"object": "list", "data": [{"id": "small"}]})
    result = ctl("models", "-o", output)
    assert (result.code, result.out) == (1, "")
    assert result.err == f"error: {plane.url} does not speak the admin API of llmgw\n"


def test_what_was_changed_is_told_in_80_columns(plane: FakeAdmin, ctl: Callable[..., Any]) -> None:
    removed = [f"org/model-{number:03}" for number in range(200)]
    plane.on("POST /v1/catalog/delete", 200, {"revision": 9, "removed": removed})
    lines = ctl("delete", "all").out.splitlines()
    assert max(map(len, lines)) <= 80
    assert all(name in "".join(lines) for name in removed)
