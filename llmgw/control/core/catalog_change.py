"""A change of the catalog as a pure function: what is in force and a request in, a new head out.

Guarantees: the result is valid as a whole, clashes with models already in force included; what
is removed leaves a tombstone. Does not write: the caller swaps the head against the revision it
read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from llmgw.domain.catalog import (
    CatalogError,
    Head,
    Model,
    Problem,
    Tombstone,
    check_models,
    document_bytes,
    document_hash,
    make_catalog,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TOMBSTONES_MAX = 1_000
DOCUMENT_BYTES_MAX = 1 << 20
"""etcd takes 1.5 MiB at once, and a document is never split."""


class ModelNotFoundError(Exception):
    """Models to be deleted are not in the catalog; `names` lists them."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        super().__init__(f"no such model in the catalog: {', '.join(names)}")


@dataclass(frozen=True, slots=True)
class CatalogChange:
    """A new head, every document it names, and what it changes."""

    head: Head
    documents: Mapping[str, bytes]
    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write."""
        return not (self.added or self.changed or self.removed)


def apply_models(
    in_force: Mapping[str, Model], head: Head, raw: object, *, prune: bool, who: str, when: str
) -> CatalogChange:
    """Add and change the models given; with `prune`, remove all others.

    Raises:
        CatalogError: the models, or the catalog that would result, are not valid.
    """
    given = check_models(raw)
    _check_sizes(given)
    names = {model.name for model in given}
    kept = [model for name, model in sorted(in_force.items()) if name not in names and not prune]
    _check_together(kept, given)
    removed = tuple(sorted(in_force.keys() - names)) if prune else ()
    return _change(
        head,
        [*kept, *given],
        added=tuple(sorted(names - in_force.keys())),
        changed=tuple(sorted(m.name for m in given if in_force.get(m.name, m) != m)),
        removed=removed,
        unchanged=tuple(sorted(m.name for m in given if in_force.get(m.name) == m)),
        who=who,
        when=when,
    )


def _check_sizes(given: Sequence[Model]) -> None:
    sizes = [(index, len(document_bytes(model))) for index, model in enumerate(given)]
    problems = [
        Problem(
            ("models", index),
            f"as a document this model is {size} bytes; at most {DOCUMENT_BYTES_MAX} can be stored",
        )
        for index, size in sizes
        if size > DOCUMENT_BYTES_MAX
    ]
    if problems:
        raise CatalogError(problems)


def delete_models(
    in_force: Mapping[str, Model], head: Head, names: Sequence[str], *, who: str, when: str
) -> CatalogChange:
    """Remove models by name.

    Raises:
        ModelNotFoundError: some are not in the catalog; none is removed.
    """
    missing = sorted(set(names) - in_force.keys())
    if missing:
        raise ModelNotFoundError(missing)
    kept = [model for name, model in sorted(in_force.items()) if name not in names]
    return _change(head, kept, removed=tuple(sorted(set(names))), who=who, when=when)


def _change(
    head: Head,
    models: Sequence[Model],
    *,
    added: tuple[str, ...] = (),
    changed: tuple[str, ...] = (),
    removed: tuple[str, ...] = (),
    unchanged: tuple[str, ...] = (),
    who: str,
    when: str,
) -> CatalogChange:
    documents = {model.name: document_bytes(model) for model in models}
    hashes = {name: document_hash(document) for name, document in documents.items()}
    tombstones = {n: stone for n, stone in head.tombstones.items() if n not in hashes}
    tombstones |= {name: Tombstone(who=who, when=when) for name in removed}
    newest = sorted(tombstones, key=lambda name: tombstones[name].when)[-TOMBSTONES_MAX:]
    return CatalogChange(
        head=Head(
            models=hashes,
            tombstones={name: tombstones[name] for name in newest},
            who=who,
            when=when,
        ),
        documents={hashes[name]: document for name, document in documents.items()},
        added=added,
        changed=changed,
        removed=removed,
        unchanged=unchanged,
    )


def _check_together(kept: Sequence[Model], given: Sequence[Model]) -> None:
    try:
        make_catalog(0, [*kept, *given])
    except CatalogError as error:
        raise CatalogError(
            [Problem(_moved(p.path, -len(kept)), p.reason) for p in error.problems]
        ) from error


def _moved(path: tuple[str | int, ...], by: int) -> tuple[str | int, ...]:
    """The path with its index counted among the models given, not among all."""
    where, index, *rest = path
    return (where, int(index) + by, *rest)
