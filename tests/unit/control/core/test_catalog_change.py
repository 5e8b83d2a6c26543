"""Changes of the catalog: all or nothing, valid as a whole, with tombstones."""

from __future__ import annotations

from typing import Any

import pytest

from llmgw.control.core.catalog_change import (
    DOCUMENT_BYTES_MAX,
    CatalogChange,
    ModelNotFoundError,
    apply_models,
    delete_models,
)
from llmgw.domain.catalog import (
    CatalogError,
    Head,
    Model,
    Tombstone,
    document_bytes,
    document_hash,
    parse_document,
)
from tests.support.fleet import model

A, B = model("a", aliases=["x"]), model("b")
IN_FORCE = {"a": A, "b": B}


def raw(of: Model, **changed: Any) -> dict[str, Any]:
    return of.model_dump(mode="json") | changed


def apply(*models: object, prune: bool = False, head: Head | None = None) -> CatalogChange:
    return apply_models(
        IN_FORCE, head or Head(), list(models), prune=prune, who="me", when="2026-01-01"
    )


def names(change: CatalogChange) -> dict[str, tuple[str, ...]]:
    kinds = ("added", "changed", "removed", "unchanged")
    return {kind: value for kind in kinds if (value := getattr(change, kind))}


def test_adds_changes_and_leaves_the_rest() -> None:
    change = apply(raw(model("c")), raw(B, weight=5))
    assert names(change) == {"added": ("c",), "changed": ("b",)}
    assert set(change.head.models) == {"a", "b", "c"}
    assert (change.head.who, change.head.when) == ("me", "2026-01-01")


def test_every_document_the_head_names_is_there() -> None:
    change = apply(raw(model("c")))
    for name, digest in change.head.models.items():
        document = change.documents[digest]
        assert document_hash(document) == digest
        assert parse_document(document).name == name
    assert change.head.models["a"] == document_hash(document_bytes(A))


def test_the_same_again_changes_nothing() -> None:
    change = apply(raw(A), raw(B))
    assert names(change) == {"unchanged": ("a", "b")}
    assert change.is_empty


def test_prune_removes_what_is_not_named_with_a_tombstone() -> None:
    change = apply(raw(A), prune=True)
    assert names(change) == {"removed": ("b",), "unchanged": ("a",)}
    assert change.head.tombstones == {"b": Tombstone(who="me", when="2026-01-01")}


def test_a_model_that_comes_back_has_no_tombstone() -> None:
    head = Head(tombstones={"c": Tombstone(who="x", when="1")})
    assert apply(raw(model("c")), head=head).head.tombstones == {}


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"name": "c", "aliases": ["a"]}, ("models", 0, "aliases", 0)),
        ({"name": "x"}, ("models", 0, "name")),
        ({"name": "c", "aliases": ["d", "x"]}, ("models", 0, "aliases", 1)),
    ],
)
def test_clashes_with_models_in_force_name_the_field_given(
    change: dict[str, Any], path: tuple[str | int, ...]
) -> None:
    with pytest.raises(CatalogError) as caught:
        apply(raw(model("c"), **change))
    assert [problem.path for problem in caught.value.problems] == [path]
    assert "'a'" in caught.value.problems[0].reason


def test_an_alias_may_move_in_one_change() -> None:
    change = apply(raw(A, aliases=[]), raw(B, aliases=["x"]))
    assert names(change) == {"changed": ("a", "b")}


def test_no_clash_with_what_is_pruned() -> None:
    assert names(apply(raw(model("x")), prune=True))["added"] == ("x",)


def test_an_invalid_model_is_refused_with_its_field() -> None:
    with pytest.raises(CatalogError) as caught:
        apply(raw(model("c"), replicas=-1))
    assert caught.value.problems[0].path == ("models", 0, "replicas")


def test_a_model_that_no_store_would_take_is_refused_with_its_place() -> None:
    """The refusal of etcd would come late, and look like an etcd that is away."""
    long = raw(model("c"))
    long["profiles"][0]["args"] = ["y" * DOCUMENT_BYTES_MAX]
    with pytest.raises(
        CatalogError, match=rf"at most {DOCUMENT_BYTES_MAX} can be stored"
    ) as caught:
        apply(raw(B), long)
    assert [problem.path for problem in caught.value.problems] == [("models", 1)]


def test_delete_leaves_tombstones_and_the_rest() -> None:
    change = delete_models(IN_FORCE, Head(), ["a"], who="me", when="1")
    assert names(change) == {"removed": ("a",)}
    assert set(change.head.models) == {"b"}
    assert set(change.head.tombstones) == {"a"}


def test_delete_of_an_unknown_model_deletes_none() -> None:
    with pytest.raises(ModelNotFoundError) as caught:
        delete_models(IN_FORCE, Head(), ["a", "zz"], who="me", when="1")
    assert caught.value.names == ("zz",)


def test_tombstones_are_bounded_and_the_oldest_go() -> None:
    old = {f"t{n}": Tombstone(who="x", when=f"{n:05}") for n in range(1_000)}
    change = delete_models(IN_FORCE, Head(tombstones=old), ["a"], who="me", when="2026")
    assert len(change.head.tombstones) == 1_000
    assert "a" in change.head.tombstones
    assert "t0" not in change.head.tombstones
