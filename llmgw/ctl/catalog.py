"""`ctl apply`, `get`, `delete`, `schema`: the catalog, as files.

A file is checked here first, so that nothing is sent that is known to be wrong; what the control
plane finds besides (clashes with models in force) is shown at the same lines. A catalog that
changed since it was read is never overwritten, unless the operator insists.
"""

from __future__ import annotations

import getpass
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from llmgw.ctl.client import InvalidCatalogError
from llmgw.ctl.errors import ConflictError, NotFoundError, RefusedError
from llmgw.ctl.output import Output, print_data, print_labelled, print_table, to_yaml
from llmgw.ctl.yaml_input import CatalogFile, read_catalog_file, refusal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from llmgw.ctl.client import AdminClient

STANDARD_INPUT = "-"
_CHANGES = ("added", "changed", "removed", "unchanged")


def load_file(file_name: str) -> CatalogFile:
    """Read and check a catalog file; `-` is standard input.

    Raises:
        RefusedError: it cannot be read, or something in it is wrong.
    """
    try:
        if file_name == STANDARD_INPUT:
            content, shown = sys.stdin.buffer.read(), "standard input"
        else:
            content, shown = Path(file_name).read_bytes(), file_name
    except OSError as error:
        raise RefusedError(f"{file_name}: {(error.strerror or str(error)).lower()}") from error
    file = read_catalog_file(content, shown)
    file.check()
    return file


def apply_file(
    client: AdminClient, file: CatalogFile, *, prune: bool, force: bool
) -> dict[str, Any]:
    """Put the models of a checked file in force, all at once.

    Raises:
        RefusedError: a control plane found a problem; each is shown at its line.
        ConflictError: the catalog changed since the file's revision.
    """
    expected = file.revision
    if force:
        expected = None
    elif expected is None:
        expected = client.get("/v1/catalog")["revision"]
    request = {
        "models": file.models,
        "expected_revision": expected,
        "prune": prune,
        "who": operator(),
    }
    try:
        result: dict[str, Any] = client.post("/v1/catalog/apply", request)
    except InvalidCatalogError as error:
        listed = [file.describe(path, reason) for path, reason in error.problems]
        raise refusal(file.name, listed) from error
    except ConflictError as error:
        raise ConflictError(
            f"{file.name} was not applied: {error}. Read the catalog again with `llmgw ctl get`, "
            "or insist with --force"
        ) from error
    return result


def print_changes(result: dict[str, Any], output: Output) -> None:
    """What an apply or a delete did."""
    if output is not Output.TABLE:
        print_data(result, output)
        return
    for kind in _CHANGES:
        if names := result.get(kind):
            print_labelled(kind, names)
    typer.echo(f"catalog revision {result['revision']} is in force")


def show_catalog(client: AdminClient, names: Sequence[str], output: Output) -> None:
    """Print models as they are in force; YAML and JSON are what `apply` takes back.

    Raises:
        NotFoundError: a name is neither a model nor an alias; nothing is printed then.
    """
    catalog = client.get("/v1/catalog")
    models = [model for model in catalog["models"] if not names or _names(model) & set(names)]
    missing = [name for name in names if not any(name in _names(model) for model in models)]
    if missing:
        raise NotFoundError(f"no model is called {' or '.join(missing)}")
    if output is Output.TABLE:
        headers = ("MODEL", "ALIASES", "REPLICAS", "POOL", "PROFILES")
        print_table(headers, [_model_row(model) for model in models], "no models")
        return
    document = {"revision": catalog["revision"], "models": [_short(model) for model in models]}
    if output is Output.JSON:
        print_data(document, output)
    else:
        typer.echo(to_yaml(document), nl=False)


def delete_models(client: AdminClient, names: Sequence[str]) -> dict[str, Any]:
    """Remove models by name, on purpose.

    Raises:
        NotFoundError: one of them is not in force; then none is removed.
    """
    request = {"names": list(names), "expected_revision": None, "who": operator()}
    result: dict[str, Any] = client.post("/v1/catalog/delete", request)
    return result


def show_schema(client: AdminClient, output: Output) -> None:
    """The JSON Schema of one model, as the control planes check it."""
    print_data(client.get("/v1/schema"), Output.YAML if output is Output.YAML else Output.JSON)


def operator() -> str:
    """Who asks, for the records: user and machine. It proves nothing."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "unknown"
    return f"{user}@{socket.gethostname()}"


def _names(model: dict[str, Any]) -> set[str]:
    return {model["name"], *model.get("aliases", ())}


def _model_row(model: dict[str, Any]) -> tuple[object, ...]:
    profiles = [f"{profile['name']} ({profile['engine']})" for profile in model["profiles"]]
    return (
        model["name"],
        model.get("aliases"),
        model.get("replicas"),
        model.get("pool"),
        profiles,
    )


def _short(model: dict[str, Any]) -> dict[str, Any]:
    """A model without the fields that say only what they would say anyway."""
    from pydantic import ValidationError  # noqa: PLC0415 - slow to load, needed here only

    from llmgw.domain.catalog import Model  # noqa: PLC0415 - likewise

    try:
        return Model.model_validate(model).model_dump(mode="json", exclude_defaults=True)
    except ValidationError:
        return model  # a newer control plane knows fields that this program does not
