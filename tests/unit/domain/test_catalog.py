"""The catalog's schema: what may come into force, and what is said about what may not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.domain.catalog import (
    CatalogError,
    Model,
    check_models,
    document_bytes,
    document_hash,
    make_catalog,
    parse_document,
    profile_spec,
    spec_hash,
)

PROFILE = {"name": "cpu", "engine": "llamacpp"}


def model(name: object = "m", **more: object) -> dict[str, object]:
    return {"name": name, "profiles": [PROFILE], **more}


def problems_of(raw: object) -> list[str]:
    with pytest.raises(CatalogError) as caught:
        check_models(raw)
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize("name", ["org/m", "org/m:q4", "org/m-2", "no", "1.10", "Qwen3_0.6B"])
def test_hub_style_names_are_taken(name: str) -> None:
    """A13: what a hub calls a model is a name here."""
    assert check_models([model(name)])[0].name == name


@pytest.mark.parametrize(
    "name", ["m%2Fx", "../m", "a b", "x" * 300, "", "/m", "m/", "a//b", "a/../b", "ä", "m\n"]
)
def test_names_that_would_break_a_route_or_a_file_are_refused_by_field(name: str) -> None:
    (problem,) = problems_of([model(name)])
    assert problem.startswith("models[0].name: ")
    assert "cannot be a name" in problem


@pytest.mark.parametrize("name", [1.1, False, 8, None])
def test_a_number_where_a_name_belongs_is_a_type_error_that_says_to_quote(name: object) -> None:
    (problem,) = problems_of([model(name)])
    assert problem.startswith("models[0].name: expected text, got ")
    assert "quote it" in problem


def test_a_long_value_is_cut_where_it_is_shown() -> None:
    (problem,) = problems_of([model("x" * 100_000)])
    assert len(problem) < 400


@pytest.mark.parametrize(
    ("second", "said"),
    [
        (model("a"), "models[1].name: name 'a' is already the name of model 'a'"),
        (model("b", aliases=["a"]), "models[1].aliases[0]: alias 'a' is already the name of"),
        (model("b", aliases=["x"]), "models[1].aliases[0]: alias 'x' is already the alias of"),
        (model("x"), "models[1].name: name 'x' is already the alias of model 'a'"),
        (model("b", aliases=["b"]), "models[1].aliases[0]: alias 'b' is already the name of"),
    ],
)
def test_no_name_or_alias_is_used_twice(second: dict[str, object], said: str) -> None:
    (problem,) = problems_of([model("a", aliases=["x"]), second])
    assert problem.startswith(said)


def test_no_profile_stands_twice() -> None:
    raw = [model("a", profiles=[PROFILE, PROFILE])]
    assert problems_of(raw) == ["models[0].profiles[1].name: profile 'cpu' stands here twice"]


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ([model(replicas=-1)], "models[0].replicas: input should be greater than or equal to 0"),
        ([model(replicas="two")], "models[0].replicas: "),
        ([model(replicas=True)], "models[0].replicas: "),
        ([model(colour="red")], "models[0].colour: no such field"),
        ([{"name": "m"}], "models[0].profiles: this field is required"),
        ([model(profiles=[])], "models[0].profiles: "),
        ([model(profiles=[{"name": "p", "engine": "ollama"}])], "models[0].profiles[0].engine: "),
        ([model(profiles=[PROFILE | {"tp": 0}])], "models[0].profiles[0].tp: "),
        ([model(profiles=[PROFILE | {"startup_timeout": 0}])], "models[0].profiles[0].startup_t"),
        (["m"], "models[0]: "),
        ({"name": "m"}, "models: expected a list of models"),
    ],
)
def test_every_problem_names_its_field(raw: object, said: str) -> None:
    assert problems_of(raw)[0].startswith(said)


def test_all_problems_are_reported_at_once() -> None:
    said = problems_of([model(1), model("b", tp=1), model("b")])
    assert len(said) == 2
    assert {line.split(":")[0] for line in said} == {"models[0].name", "models[1].tp"}
    said = problems_of([model("b"), model("b"), model("b")])
    assert [line.split(":")[0] for line in said] == ["models[1].name", "models[2].name"]


NAMES = st.from_regex(r"[a-z][a-z0-9]{0,8}(/[a-z0-9]{1,8})?", fullmatch=True)
MODELS = st.builds(
    lambda name, replicas, args, env: Model.model_validate(
        model(name, replicas=replicas, profiles=[PROFILE | {"args": args, "env": env}])
    ),
    NAMES,
    st.integers(0, 100),
    st.lists(st.text(max_size=5), max_size=3),
    st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3),
)


@given(MODELS)
def test_a_document_comes_back_as_it_went_and_keeps_its_hash(written: Model) -> None:
    document = document_bytes(written)
    read = parse_document(document)
    assert read == written
    assert document_hash(document_bytes(read)) == document_hash(document)


@pytest.mark.parametrize("document", [b"", b"{", b"\xff", b"[]", b'{"name": "m"}'])
def test_a_stored_document_is_checked_on_the_way_out(document: bytes) -> None:
    with pytest.raises(CatalogError):
        parse_document(document)


def test_a_model_is_found_by_name_and_alias_only() -> None:
    catalog = make_catalog(7, check_models([model("org/m", aliases=["m"]), model("org/m-2")]))
    assert catalog.find("org/m") is catalog.find("m") is catalog.models["org/m"]
    assert catalog.find("org/m-2") is catalog.models["org/m-2"]
    assert catalog.find("org") is None


def hash_of(**profile: object) -> str:
    (checked,) = check_models([model(profiles=[PROFILE | profile])])
    return spec_hash(profile_spec(checked, checked.profiles[0]))


@pytest.mark.parametrize(
    "change", [{"args": ["-c"]}, {"env": {"A": "b"}}, {"memory_mb": 1}, {"model_path": "/x"}]
)
def test_what_reaches_the_engine_changes_the_spec_hash(change: dict[str, object]) -> None:
    assert hash_of(**change) != hash_of()


@pytest.mark.parametrize("change", [{"labels": {"a": "b"}}, {"startup_timeout": 5}, {"name": "x"}])
def test_what_needs_no_new_process_leaves_the_spec_hash(change: dict[str, object]) -> None:
    assert hash_of(**change) == hash_of()


def test_a_profile_overrides_what_the_model_says() -> None:
    raw = model(
        "m",
        model_path="/model",
        served_model_name="served",
        profiles=[PROFILE, PROFILE | {"name": "b", "model_path": "/own", "served_model_name": "s"}],
    )
    (checked,) = check_models([raw])
    first, second = (profile_spec(checked, profile) for profile in checked.profiles)
    assert (first.model_path, first.served_model_name) == ("/model", "served")
    assert (second.model_path, second.served_model_name) == ("/own", "s")
    (plain,) = check_models([model("org/m")])
    assert profile_spec(plain, plain.profiles[0]).served_model_name == "org/m"
