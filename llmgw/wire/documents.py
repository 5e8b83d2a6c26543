"""What stands in etcd, folded into values: the catalog from head and documents, the endpoints.

Pure functions over a mirrored prefix. A caller keeps its last good value when one raises.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from pydantic import ValidationError

from llmgw.domain.catalog import (
    EMPTY_CATALOG,
    Catalog,
    CatalogError,
    Head,
    Model,
    Problem,
    document_hash,
    make_catalog,
    parse_document,
    parse_head,
)
from llmgw.domain.endpoint import Endpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from llmgw.wire.keys import Keys

T = TypeVar("T")


def fold_catalog(
    keys: Keys, items: Mapping[str, bytes], head_revision: int, known: Catalog = EMPTY_CATALOG
) -> Catalog:
    """The catalog that a mirror of the `catalog/` prefix holds.

    All models gone at once, and not one of them deleted by anybody, is damage and no wish.

    Args:
        keys: the cluster's key layout.
        items: key to value, the whole prefix at one revision.
        head_revision: modification revision of the head; 0 when there is none.
        known: the last good catalog.

    Raises:
        CatalogError: the head or a document is missing, damaged or invalid; it names the key.
    """
    head_document = items.get(keys.catalog_head)
    if head_document is None:
        if known.models or any(key.startswith(keys.catalog_documents) for key in items):
            reason = "the head is missing, but there are or were models"
            raise CatalogError([Problem((keys.catalog_head,), reason)])
        return EMPTY_CATALOG
    head = _named(keys.catalog_head, parse_head, head_document)
    if known.models and not head.models and not known.models.keys() & head.tombstones.keys():
        reason = f"all {len(known.models)} models are gone, and nobody deleted them"
        raise CatalogError([Problem((keys.catalog_head,), reason)])
    models = [_model(keys, items, name, digest) for name, digest in sorted(head.models.items())]
    return make_catalog(head_revision, models)


def fold_head(keys: Keys, items: Mapping[str, bytes]) -> Head:
    """The head that a mirror of the `catalog/` prefix holds; an empty one if there is none.

    Raises:
        CatalogError: it cannot be read.
    """
    document = items.get(keys.catalog_head)
    return Head() if document is None else _named(keys.catalog_head, parse_head, document)


def parse_endpoint(key: str, value: bytes) -> Endpoint:
    """One endpoint.

    Raises:
        CatalogError: it cannot be read; it names the key.
    """
    try:
        return Endpoint.model_validate_json(value)
    except ValidationError as error:
        raise CatalogError([Problem((key,), str(error.errors()[0]["msg"]))]) from error


def _model(keys: Keys, items: Mapping[str, bytes], name: str, digest: str) -> Model:
    key = keys.catalog_document(digest)
    document = items.get(key)
    if document is None:
        raise CatalogError([Problem((key,), f"the document of model {name!r} is missing")])
    if document_hash(document) != digest:
        raise CatalogError([Problem((key,), f"the document of model {name!r} is damaged")])
    model = _named(key, parse_document, document)
    if model.name != name:
        raise CatalogError([Problem((key,), f"holds model {model.name!r}, not {name!r}")])
    return model


def _named(key: str, parse: Callable[[bytes], T], document: bytes) -> T:
    try:
        return parse(document)
    except CatalogError as error:
        problems = [Problem((key, *problem.path), problem.reason) for problem in error.problems]
        raise CatalogError(problems) from error
