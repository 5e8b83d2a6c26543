"""The catalog: which models should run and how, checked by one schema on the way in and out.

A model is one immutable JSON document, named by the SHA-256 of its canonical bytes. A head maps
names to documents, so that any number of models comes into force with one write of the head. A
catalog is valid as a whole or not at all: `check_models` reports every problem it finds, each
with the path of the field, so that a caller can point at a line.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
)

from llmgw.domain.shard import ProfileSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

NAME_LENGTH_MAX = 200
_SHOWN_LENGTH_MAX = 60
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]*")
_NAME_RULE = (
    "a name starts with a letter or digit and goes on with letters, digits and . _ : / - "
    f"(at most {NAME_LENGTH_MAX}), without '//', '..' or a '/' at the end"
)


def _check_name(name: str) -> str:
    if (
        len(name) > NAME_LENGTH_MAX
        or not _NAME.fullmatch(name)
        or "//" in name
        or ".." in name
        or name.endswith("/")
    ):
        shown = name if len(name) <= NAME_LENGTH_MAX else name[:40] + "..."
        raise ValueError(f"{shown!r} cannot be a name: {_NAME_RULE}")
    return name


Name = Annotated[str, AfterValidator(_check_name)]


class _Document(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class Profile(_Document):
    """One way to run a model. Profiles are tried in the order they are listed."""

    name: Name = Field(description="unique within the model")
    engine: Literal["llamacpp", "vllm", "sglang", "command"]
    engine_version: str = Field(default="", description="empty: whatever the node has")
    gpu_class: str = Field(default="", description="part of the GPU's name; empty: a CPU node")
    tp: int = Field(default=1, ge=1, le=64, description="tensor parallel size")
    pp: int = Field(default=1, ge=1, le=64, description="pipeline parallel size")
    gpus_per_node: int = Field(default=0, ge=0, le=64, description="0: runs on the CPU")
    nodes: int = Field(default=1, ge=1, le=64, description="nodes that one replica spans")
    memory_mb: int = Field(default=0, ge=0, description="MiB per GPU, or of RAM on a CPU node")
    fabric: str = ""
    labels: dict[str, str] = Field(default={}, description="labels a node must carry")
    args: list[str] = Field(default=[], description="appended to the engine's command line")
    env: dict[str, str] = {}
    startup_timeout: float = Field(
        default=600.0, gt=0, le=86_400, strict=False, description="seconds from start to ready"
    )
    model_path: str = Field(default="", description="overrides the model's")
    served_model_name: str = Field(default="", description="overrides the model's")


class Model(_Document):
    """One catalog entry. Clients address it by its name or an alias."""

    name: Name
    aliases: list[Name] = []
    replicas: int = Field(default=1, ge=0, le=10_000)
    pool: str = Field(default="", description="replicas run only on nodes of this pool")
    weight: int = Field(default=1, ge=1, le=1_000_000, description="share of the requests")
    model_path: str = Field(default="", description="file or folder of the weights on the node")
    served_model_name: str = Field(default="", description="what the engine calls it; else name")
    profiles: list[Profile] = Field(min_length=1)


class Tombstone(_Document):
    """A model was removed on purpose: by whom and when (UTC, ISO 8601)."""

    who: str
    when: str


class Head(_Document):
    """What is in force: name to document hash, and what was deleted on purpose."""

    models: dict[str, str] = {}
    tombstones: dict[str, Tombstone] = {}
    who: str = ""
    when: str = ""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a catalog: where (`path` of keys and indexes) and what."""

    path: tuple[str | int, ...]
    reason: str

    @property
    def field(self) -> str:
        """The path as a person writes it: `models[1].profiles[0].tp`."""
        text = ""
        for part in self.path:
            text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
        return text

    def __str__(self) -> str:
        return f"{self.field}: {self.reason}" if self.path else self.reason


class CatalogError(ValueError):
    """A catalog that may not come into force. `problems` says why, in the order found."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(str(problem) for problem in self.problems))


@dataclass(frozen=True, slots=True)
class Catalog:
    """A valid catalog, and the store revision of the head that put it in force (0: none yet)."""

    revision: int
    models: Mapping[str, Model]

    def find(self, name: str) -> Model | None:
        """The model that clients mean by a name or an alias."""
        if model := self.models.get(name):
            return model
        return next((model for model in self.models.values() if name in model.aliases), None)


EMPTY_CATALOG = Catalog(revision=0, models={})


def document_bytes(model: Model) -> bytes:
    """The canonical JSON of a model: the same model always has the same bytes."""
    return json.dumps(model.model_dump(mode="json"), sort_keys=True, separators=(",", ":")).encode()


def document_hash(document: bytes) -> str:
    """The name of a document: the SHA-256 of its bytes, lower-case hex."""
    return hashlib.sha256(document).hexdigest()


def parse_document(document: bytes) -> Model:
    """Read one stored document.

    Raises:
        CatalogError: it is not JSON, or not a model.
    """
    try:
        return Model.model_validate_json(document)
    except ValidationError as error:
        raise CatalogError(_problems(error, ())) from error


def parse_head(document: bytes) -> Head:
    """Read a stored head.

    Raises:
        CatalogError: it is not JSON, or not a head.
    """
    try:
        return Head.model_validate_json(document)
    except ValidationError as error:
        raise CatalogError(_problems(error, ())) from error


def check_models(raw: object) -> tuple[Model, ...]:
    """Validate a list of models as a whole.

    Args:
        raw: what YAML or JSON gave; expected is a list of mappings.

    Raises:
        CatalogError: with every problem found; paths begin with `"models"`.
    """
    if not isinstance(raw, list):
        raise CatalogError([Problem(("models",), "expected a list of models")])
    problems: list[Problem] = []
    models: list[tuple[int, Model]] = []
    for index, item in enumerate(raw):
        try:
            models.append((index, Model.model_validate(item)))
        except ValidationError as error:
            problems += _problems(error, ("models", index))
    problems += _clashes(models)
    if problems:
        raise CatalogError(problems)
    return tuple(model for _, model in models)


def make_catalog(revision: int, models: Iterable[Model]) -> Catalog:
    """A catalog of models that are each valid, checked for clashes between them.

    Raises:
        CatalogError: a name or alias is used twice.
    """
    listed = list(models)
    problems = _clashes(list(enumerate(listed)))
    if problems:
        raise CatalogError(problems)
    return Catalog(revision=revision, models={model.name: model for model in listed})


def model_schema() -> dict[str, Any]:
    """The JSON Schema of one model."""
    return TypeAdapter(Model).json_schema()


def profile_spec(model: Model, profile: Profile) -> ProfileSpec:
    """A profile with the model's defaults filled in."""
    return ProfileSpec(
        name=profile.name,
        engine=profile.engine,
        engine_version=profile.engine_version,
        gpu_class=profile.gpu_class,
        tp=profile.tp,
        pp=profile.pp,
        gpus_per_node=profile.gpus_per_node,
        nodes=profile.nodes,
        memory_mb=profile.memory_mb,
        fabric=profile.fabric,
        labels=dict(profile.labels),
        args=tuple(profile.args),
        env=dict(profile.env),
        startup_timeout_s=profile.startup_timeout,
        model_path=profile.model_path or model.model_path,
        served_model_name=profile.served_model_name or model.served_model_name or model.name,
    )


def spec_hash(spec: ProfileSpec) -> str:
    """A short hash of all that decides how an engine runs.

    Left out are the profile's name, where it may run (`labels`) and how long it may take to
    start: changing those needs no new process.
    """
    facts = dataclasses.asdict(spec)
    for field in ("name", "labels", "startup_timeout_s"):
        del facts[field]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def _clashes(models: Sequence[tuple[int, Model]]) -> list[Problem]:
    problems: list[Problem] = []
    owner: dict[str, tuple[str, str]] = {}
    for index, model in models:
        names: list[tuple[tuple[str | int, ...], str]] = [(("name",), model.name)]
        names += [(("aliases", i), alias) for i, alias in enumerate(model.aliases)]
        for where, name in names:
            kind = "name" if where == ("name",) else "alias"
            if name in owner:
                used_as, used_by = owner[name]
                reason = f"{kind} {name!r} is already the {used_as} of model {used_by!r}"
                problems.append(Problem(("models", index, *where), reason))
            else:
                owner[name] = (kind, model.name)
        profiles: set[str] = set()
        for i, profile in enumerate(model.profiles):
            if profile.name in profiles:
                path = ("models", index, "profiles", i, "name")
                problems.append(Problem(path, f"profile {profile.name!r} stands here twice"))
            profiles.add(profile.name)
    return problems


def _problems(error: ValidationError, prefix: tuple[str | int, ...]) -> list[Problem]:
    return [
        Problem((*prefix, *item["loc"]), _reason(item["type"], item["msg"], item["input"]))
        for item in error.errors(include_url=False, include_context=False)
    ]


def _reason(kind: str, message: str, value: object) -> str:
    if kind == "string_type":
        return f"expected text, got {_shown(value)}; quote it if it is meant as text"
    if kind == "extra_forbidden":
        return "no such field"
    if kind == "missing":
        return "this field is required"
    if kind == "value_error":
        return message.removeprefix("Value error, ")
    return f"{message[:1].lower()}{message[1:]}, got {_shown(value)}"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_LENGTH_MAX else text[: _SHOWN_LENGTH_MAX - 3] + "..."
