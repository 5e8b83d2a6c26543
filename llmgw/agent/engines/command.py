"""Engine `command`: any program that speaks the OpenAI API.

The profile's args are the whole command line. In args and env values these stand for facts of the
shard: {port} {host} {model_path} {gpus} {served_model_name} {replica_id}; other braces stay as
they are. Ready is a 2xx from GET /health; a server without that path (404, 405, 501) is asked
for /v1/models, and one without that either is ready as soon as it answers. 401 and 403 count as
ready: the server is up and wants a key. Every other status is loading.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

from llmgw.agent.engines.base import Health, Launch
from llmgw.agent.errors import StartError
from llmgw.domain.node import EngineInstallation

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from llmgw.domain.shard import ShardSpec

_PLACEHOLDER = re.compile(r"\{(port|host|model_path|gpus|served_model_name|replica_id)\}")
_NO_SUCH_PATH = {HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.NOT_IMPLEMENTED}
_WANTS_A_KEY = {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}


class CommandEngine:
    """Any argv."""

    name = "command"

    def installation(self) -> EngineInstallation:
        """Always here: what it runs is checked when a shard is started."""
        return EngineInstallation(engine=self.name, detail="any program the profile names")

    def launch(self, spec: ShardSpec, address: str) -> Launch:
        """The profile's args with the shard's facts filled in."""
        profile = spec.profile
        if not profile.args:
            raise StartError(f"profile {profile.name} has no args: they are the command to run")
        path = profile.model_path
        # A relative path may be the name of a repository, which the program resolves itself.
        if path.startswith("/") and not Path(path).exists():
            raise StartError(f"model_path {path} does not exist")
        facts = {
            "port": str(spec.http_port),
            "host": address,
            "model_path": path,
            "gpus": ",".join(spec.gpu_uuids),
            "served_model_name": profile.served_model_name,
            "replica_id": spec.replica_id,
        }

        def fill(text: str) -> str:
            return _PLACEHOLDER.sub(lambda match: facts[match[1]], text)

        argv = tuple(fill(arg) for arg in profile.args)
        return Launch(argv, {name: fill(value) for name, value in profile.env.items()})

    async def health(self, url: str, status_of: Callable[[str], Awaitable[int | None]]) -> Health:
        """GET /health, then /v1/models, then any answer."""
        for path in ("/health", "/v1/models"):
            status = await status_of(url + path)
            if status is None:
                return Health.SILENT
            if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES or status in _WANTS_A_KEY:
                return Health.READY
            if status not in _NO_SUCH_PATH:
                return Health.LOADING
        return Health.READY
