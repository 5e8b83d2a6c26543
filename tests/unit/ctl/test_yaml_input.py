"""Catalog files: nothing YAML does in silence reaches a catalog, and every problem has a line."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from llmgw.ctl.errors import RefusedError
from llmgw.ctl.output import to_yaml
from llmgw.ctl.yaml_input import NODES_MAX, CatalogFile, read_catalog_file

PROFILE = "profiles: [{name: cpu, engine: llamacpp}]"


def read(text: str | bytes) -> CatalogFile:
    return read_catalog_file(text.encode() if isinstance(text, str) else text, "f.yaml")


def problems(text: str | bytes) -> tuple[str, ...]:
    """What is said about a file that is refused."""
    with pytest.raises(RefusedError) as caught:
        read(text).check()
    return caught.value.problems or (str(caught.value),)


def model(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "profiles": [{"name": "cpu", "engine": "llamacpp"}], **more}


def test_the_four_shapes_mean_the_same() -> None:
    one = json.dumps(model("a"))
    two = json.dumps(model("b"))
    for text in (
        f"models: [{one}, {two}]",
        f"- {one}\n- {two}",
        f"{one}\n---\n{two}",
        f"models: [{one}]\n---\n# nothing\n---\n- {two}",
    ):
        file = read(text)
        file.check()
        assert file.models == [model("a"), model("b")]
    single = read(one)
    single.check()
    assert single.models == [model("a")]


def test_json_is_read_too() -> None:
    file = read(json.dumps({"revision": 7, "models": [model("a")]}, indent=2))
    file.check()
    assert (file.revision, len(file.models)) == (7, 1)


def test_an_empty_list_of_models_is_a_catalog() -> None:
    file = read("models: []")
    file.check()
    assert file.models == []


@pytest.mark.parametrize(
    ("written", "understood"),
    [
        ("1.10", "the number 1.1"),
        ("no", "the boolean false"),
        ("Yes", "the boolean true"),
        ("0123", "the number 83"),
        ("1_000", "the number 1000"),
        ("1:30", "the number 90"),
        ("~", "null"),
        ("2024-01-02", "the date 2024-01-02"),
        (".inf", "the special number inf"),
        ("1e3.5", None),
        ("v1.10", None),
    ],
)
def test_an_unquoted_value_where_a_name_belongs_is_a_type_error(
    written: str, understood: str | None
) -> None:
    """A13: never 1.1, false or 83."""
    text = f"name: {written}\n{PROFILE}\n"
    if understood is None:
        file = read(text)
        file.check()
        assert file.models[0]["name"] == written
        return
    (problem,) = problems(text)
    assert problem == (
        f"f.yaml:1: models[0].name: expected text, but YAML reads {written} as {understood}; "
        f'quote it: "{written}"'
    )


@pytest.mark.parametrize("written", ["1.10", "no", "0123"])
def test_a_quoted_value_is_the_text_as_it_stands(written: str) -> None:
    file = read(f"name: '{written}'\naliases: [\"{written}x\"]\n{PROFILE}\n")
    file.check()
    assert file.models[0]["name"] == written


def test_text_is_wanted_in_every_place_that_takes_text() -> None:
    text = (
        "models:\n"
        "  - name: a\n"
        "    aliases:\n"
        "      - fine\n"
        "      - off\n"
        "    profiles:\n"
        "      - name: cpu\n"
        "        engine: llamacpp\n"
        "        engine_version: 1.10\n"
        "        args: [--seed, 42]\n"
        "        env: {DEBUG: 1}\n"
        "        labels: {rack: 07}\n"
    )
    lines = [problem.split(": expected")[0] for problem in problems(text)]
    assert lines == [
        "f.yaml:5: models[0].aliases[1]",
        "f.yaml:9: models[0].profiles[0].engine_version",
        "f.yaml:10: models[0].profiles[0].args[1]",
        "f.yaml:11: models[0].profiles[0].env.DEBUG",
        "f.yaml:12: models[0].profiles[0].labels.rack",
    ]


def test_a_missing_value_says_so() -> None:
    (problem,) = problems(f"name:\n{PROFILE}\n")
    assert problem == "f.yaml:1: models[0].name: expected text, but nothing stands here"


@pytest.mark.parametrize(("written", "is_read_as"), [("010", 8), ("1:30", 90), ("0_7", 7)])
def test_a_number_in_disguise_is_refused_where_a_number_belongs(
    written: str, is_read_as: int
) -> None:
    (problem,) = problems(f"name: a\nreplicas: {written}\n{PROFILE}\n")
    assert problem.startswith(
        f"f.yaml:2: models[0].replicas: YAML reads {written} as the number {is_read_as}"
    )


@pytest.mark.parametrize("written", ["0", "10", "1000"])
def test_a_plain_number_is_a_number(written: str) -> None:
    file = read(f"name: a\nreplicas: {written}\n{PROFILE}\n")
    file.check()
    assert file.models[0]["replicas"] == int(written)


def test_a_key_that_stands_twice_is_an_error_at_the_second() -> None:
    (problem,) = problems(f"name: a\n{PROFILE}\nname: b\n")
    assert problem == ("f.yaml:3: models[0].name: this key stands here twice (first in line 1)")


def test_a_key_that_is_not_text_is_an_error() -> None:
    found = problems(f"name: a\nno: 1\n{PROFILE}\n[x]: 1\n")
    assert "f.yaml:2: models[0]: as a key: expected text, but YAML reads no" in found[0]
    assert found[1] == "f.yaml:4: models[0]: a key must be text"


def test_every_problem_is_reported_in_the_order_of_the_file() -> None:
    text = (
        "models:\n"
        "- name: 1.10\n"
        "  replicas: many\n"
        "  profiles:\n"
        "  - {name: cpu, engine: nosuch, tp: 100}\n"
        "- name: ok\n"
        "  profile: []\n"
        "extra: 1\n"
    )
    found = [problem.split(": ")[0] + " " + problem.split(": ")[1] for problem in problems(text)]
    assert found == [
        "f.yaml:2 models[0].name",
        "f.yaml:3 models[0].replicas",
        "f.yaml:5 models[0].profiles[0].engine",
        "f.yaml:5 models[0].profiles[0].tp",
        "f.yaml:6 models[1].profiles",
        "f.yaml:7 models[1].profile",
        "f.yaml:8 extra",
    ]


def test_two_models_of_one_name_are_refused_at_the_second() -> None:
    text = f"- name: a\n  {PROFILE}\n- name: b\n  aliases: [c, a]\n  {PROFILE}\n"
    (problem,) = problems(text)
    assert problem.startswith("f.yaml:4: models[1].aliases[1]: alias 'a' is already the name")


def test_a_problem_of_the_server_is_shown_at_its_line() -> None:
    file = read(f"# a comment\n- name: a\n  {PROFILE}\n- name: b\n  {PROFILE}\n")
    assert file.describe(("models", 1, "name"), "taken") == "f.yaml:4: models[1].name: taken"
    assert file.describe(("models", 1, "pool"), "x") == "f.yaml:4: models[1].pool: x"
    assert file.describe(("models",), "x") == "f.yaml: models: x"
    assert file.describe((), "x") == "f.yaml: x"


@pytest.mark.parametrize("revision", ["-1", "yes", "x", "1.0", "[1]"])
def test_a_revision_is_a_number_that_get_printed(revision: str) -> None:
    (problem,) = problems(f"revision: {revision}\nmodels: []\n")
    assert problem.startswith("f.yaml:1: revision: expected the number")


def test_documents_may_not_disagree_about_the_revision() -> None:
    (problem,) = problems("revision: 3\nmodels: []\n---\nrevision: 4\nmodels: []\n")
    assert problem == "f.yaml:4: revision: an earlier document says 3"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "f.yaml is empty"),
        ("# only a comment\n", "f.yaml is empty"),
        ("name: [a\nb: c", "f.yaml:2: this is not YAML"),
        ("a: b\n\tc: d\n", "f.yaml:2: this is not YAML"),
        (b"name: \xff\n", "f.yaml:1: this is not UTF-8"),
        ("a: 1\nname: \x07\n", "f.yaml:2: YAML does not allow this character"),
        ("just text", "f.yaml:1: expected a model"),
        ("models: {a: 1}", "f.yaml:1: models: expected a list of models"),
        ("name: !!python/object:os.system x", "f.yaml:1: models[0].name: the YAML tag"),
        ("name: !secret x", "f.yaml:1: models[0].name: the YAML tag !secret is not supported"),
        ("<<: {name: a}", "f.yaml:1: models[0]: YAML merge keys"),
        ("a: &a [*a]", "f.yaml: nested too deeply"),
        ("[" * 5000, "f.yaml: nested too deeply"),
        ("name: 2024-13-45", "f.yaml:1: models[0].name: YAML takes 2024-13-45 for a timestamp"),
    ],
)
def test_what_cannot_be_read_is_one_clear_message(text: str | bytes, said: str) -> None:
    assert problems(text)[0].startswith(said)


def test_a_bomb_of_aliases_is_refused_quickly() -> None:
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    levels += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    assert "too large" in problems("\n".join(levels))[0]
    assert NODES_MAX <= 10**6


def test_an_anchor_may_be_used_again() -> None:
    file = read(
        "- name: a\n  profiles: &p [{name: cpu, engine: vllm}]\n- name: b\n  profiles: *p\n"
    )
    file.check()
    assert file.models[0]["profiles"] == file.models[1]["profiles"]


def test_a_byte_order_mark_is_no_part_of_the_text() -> None:
    file = read(b"\xef\xbb\xbfname: a\n" + PROFILE.encode())
    file.check()
    assert file.models[0]["name"] == "a"


TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=30)
TRICKY = st.sampled_from(
    ["1.10", "no", "0123", "010", "null", "~", "", "<<", "=", "2024-01-02", "1:30", "y", "0x1f"]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT | TRICKY,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT | TRICKY, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(TEXT | TRICKY, VALUES, max_size=5))
def test_what_get_prints_is_read_back_as_the_same_values(raw: dict[str, Any]) -> None:
    """Whatever the text looks like: what a reader would take for something else is quoted."""
    document = {"revision": 3, "models": [raw]}
    file = read(to_yaml(document))
    assert file.faults == []
    assert (file.models, file.revision) == ([raw], 3)


@given(st.binary(max_size=60) | TEXT.map(str.encode))
def test_no_input_ends_in_anything_but_a_catalog_or_a_refusal(content: bytes) -> None:
    try:
        file = read(content)
        file.check()
    except RefusedError:
        pass
    else:
        assert isinstance(file.models, list)


@given(TRICKY | TEXT)
def test_a_name_that_passes_is_exactly_what_stands_in_the_file(text: str) -> None:
    try:
        file = read(f"{PROFILE}\nname: {text}")
        file.check()
    except RefusedError:
        return
    as_text = yaml.load(f"name: {text}", Loader=yaml.BaseLoader)  # noqa: S506 - makes text only
    assert [model["name"] for model in file.models] == [as_text["name"]]
