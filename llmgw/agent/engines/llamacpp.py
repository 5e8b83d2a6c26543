"""Engine `llamacpp`: the server of llama.cpp, with one GGUF file.

It is either the server inside the `xllamacpp` wheel, run by our launcher module, or a
`llama-server` on PATH when the wheel is missing. Both take the profile's args in llama-server's
own spelling (`--ctx-size 16384 --parallel 8 --threads 2`); the launcher refuses those it does not
know. Without args there are 8 slots of 2,048 tokens each.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import shutil
import sys
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

from llmgw.agent.engines.base import Health, Launch
from llmgw.agent.errors import StartError
from llmgw.domain.node import EngineInstallation

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from llmgw.domain.shard import ShardSpec

WHEEL = "xllamacpp"
BINARY = "llama-server"
LAUNCHER = "llmgw.agent.engines.llamacpp_launcher"
SLOTS = 8
SLOT_TOKENS = 2_048


class LlamaCppEngine:
    """llama.cpp's server."""

    name = "llamacpp"

    def installation(self) -> EngineInstallation | None:
        """The wheel's version, else the binary's path."""
        if importlib.util.find_spec(WHEEL) is not None:
            version = importlib.metadata.version(WHEEL)
            return EngineInstallation(engine=self.name, version=version, detail=f"{WHEEL} wheel")
        binary = shutil.which(BINARY)
        return EngineInstallation(engine=self.name, detail=binary) if binary else None

    def launch(self, spec: ShardSpec, address: str) -> Launch:
        """The launcher, or the binary, with the shard's facts before the profile's args."""
        profile = spec.profile
        if not profile.model_path:
            raise StartError(f"profile {profile.name} of model {spec.model} has no model_path")
        if not Path(profile.model_path).is_file():
            raise StartError(f"model_path {profile.model_path} does not exist")
        facts = [
            *("--model", profile.model_path, "--alias", profile.served_model_name),
            *("--host", address, "--port", str(spec.http_port), "--metrics"),
        ]
        given = {arg.partition("=")[0] for arg in profile.args}
        if not given & {"--parallel", "-np"}:
            facts += ["--parallel", str(SLOTS)]
            if not given & {"--ctx-size", "-c"}:
                facts += ["--ctx-size", str(SLOTS * SLOT_TOKENS)]
        if importlib.util.find_spec(WHEEL) is not None:
            program = [sys.executable, "-m", LAUNCHER]
        elif binary := shutil.which(BINARY):
            program = [binary]
        else:
            raise StartError(f"neither the {WHEEL} wheel nor {BINARY} is on this node")
        return Launch((*program, *facts, *profile.args), dict(profile.env))

    async def health(self, url: str, status_of: Callable[[str], Awaitable[int | None]]) -> Health:
        """GET /health answers 503 while the model loads."""
        status = await status_of(url + "/health")
        if status is None:
            return Health.SILENT
        return Health.READY if status == HTTPStatus.OK else Health.LOADING
