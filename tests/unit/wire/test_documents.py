"""What stands in etcd becomes a catalog whole, or names the key that spoils it."""

from __future__ import annotations

import pytest

from llmgw.domain.catalog import (
    EMPTY_CATALOG,
    CatalogError,
    Head,
    Model,
    Tombstone,
    check_models,
    document_bytes,
    document_hash,
)
from llmgw.domain.endpoint import Endpoint
from llmgw.wire.documents import fold_catalog, fold_head, parse_endpoint
from llmgw.wire.keys import Keys, decode, encode

KEYS = Keys("c")
STONE = Tombstone(who="w", when="2026-01-01T00:00:00+00:00")


def stored(*names: str) -> dict[str, bytes]:
    """A catalog prefix that holds these models."""
    raw = [{"name": n, "profiles": [{"name": "p", "engine": "command"}]} for n in names]
    documents = {model.name: document_bytes(model) for model in check_models(raw)}
    items = {KEYS.catalog_document(document_hash(d)): d for d in documents.values()}
    head = Head(models={name: document_hash(d) for name, d in documents.items()})
    return {**items, KEYS.catalog_head: head.model_dump_json().encode()}


def test_head_and_documents_make_a_catalog() -> None:
    catalog = fold_catalog(KEYS, stored("org/a", "b"), 9)
    assert sorted(catalog.models) == ["b", "org/a"]
    assert catalog.revision == 9


def test_nothing_stored_is_the_empty_catalog() -> None:
    assert fold_catalog(KEYS, {}, 0) is EMPTY_CATALOG
    assert fold_head(KEYS, {}) == Head()


def test_all_models_gone_without_a_tombstone_is_damage() -> None:
    known = fold_catalog(KEYS, stored("a", "b"), 9)
    empty = {KEYS.catalog_head: Head(tombstones={"z": STONE}).model_dump_json().encode()}
    for items, revision in (({}, 0), (empty, 12)):
        with pytest.raises(CatalogError, match="models") as caught:
            fold_catalog(KEYS, items, revision, known)
        assert KEYS.catalog_head in str(caught.value)


def test_a_missing_head_is_damage_while_documents_stand() -> None:
    items = stored("a")
    del items[KEYS.catalog_head]
    with pytest.raises(CatalogError, match="the head is missing"):
        fold_catalog(KEYS, items, 0)


def test_the_last_models_may_be_deleted() -> None:
    known = fold_catalog(KEYS, stored("a"), 9)
    head = Head(tombstones={"a": STONE})
    items = stored("a") | {KEYS.catalog_head: head.model_dump_json().encode()}
    assert dict(fold_catalog(KEYS, items, 12, known).models) == {}


def test_a_document_no_head_names_is_not_in_force() -> None:
    items = stored("a") | {KEYS.catalog_document("0" * 64): b"left over"}
    assert list(fold_catalog(KEYS, items, 1).models) == ["a"]


def spoiled(kind: str) -> tuple[dict[str, bytes], str]:
    items = stored("a")
    (document_key,) = (key for key in items if key.startswith(KEYS.catalog_documents))
    if kind == "missing":
        del items[document_key]
    elif kind == "damaged":
        items[document_key] = items[document_key].replace(b"command", b"llamacpp")
    elif kind == "head":
        items[KEYS.catalog_head] = b"{"
        return items, KEYS.catalog_head
    elif kind == "other model":
        items[KEYS.catalog_head] = items[KEYS.catalog_head].replace(b'"a"', b'"z"')
    elif kind == "invalid":
        document = b'{"name":"a"}'
        document_key = KEYS.catalog_document(document_hash(document))
        items[document_key] = document
        head = Head(models={"a": document_hash(document)})
        items[KEYS.catalog_head] = head.model_dump_json().encode()
    return items, document_key


@pytest.mark.parametrize("kind", ["missing", "damaged", "head", "other model", "invalid"])
def test_what_spoils_a_catalog_is_named_by_key(kind: str) -> None:
    items, key = spoiled(kind)
    with pytest.raises(CatalogError) as caught:
        fold_catalog(KEYS, items, 1)
    assert caught.value.problems[0].path[0] == key


def test_a_clash_between_stored_models_is_refused() -> None:
    items = stored("a", "b")
    alias = Model.model_validate(
        {"name": "b", "aliases": ["a"], "profiles": [{"name": "p", "engine": "command"}]}
    )
    document = document_bytes(alias)
    head = fold_head(KEYS, items).model_dump()
    head["models"]["b"] = document_hash(document)
    items[KEYS.catalog_head] = Head.model_validate(head).model_dump_json().encode()
    items[KEYS.catalog_document(document_hash(document))] = document
    with pytest.raises(CatalogError, match="already the name of model 'a'"):
        fold_catalog(KEYS, items, 1)


def test_an_endpoint_comes_back_and_a_damaged_one_names_its_key() -> None:
    endpoint = Endpoint(
        replica_id="r",
        url="http://[::1]:20000",
        model="org/m",
        aliases=("m",),
        served_model_name="s",
        engine="command",
    )
    assert parse_endpoint("k", endpoint.model_dump_json().encode()) == endpoint
    with pytest.raises(CatalogError, match=r"^k: "):
        parse_endpoint("k", b'{"url": 3}')


def test_names_are_one_segment_and_prefixes_end_in_a_slash() -> None:
    """A13: `org/m` and `org/m-2` must never be read together."""
    assert decode(encode("org/m:q4 %ä")) == "org/m:q4 %ä"
    assert "/" not in encode("org/m")
    for prefix in (KEYS.root, KEYS.catalog, KEYS.catalog_documents, KEYS.roster, KEYS.endpoints):
        assert prefix.endswith("/")
    assert KEYS.endpoint("a/b") == "/llmgw/c/endpoints/a%2Fb"
    assert not KEYS.endpoint("ab").startswith(KEYS.endpoint("a") + "/")
