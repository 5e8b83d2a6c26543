"""Brings a system up step by step, and says what it waits for.

Every wait ends with the condition or with a message that names what did not happen. Only the wait
for models has no end while somebody watches: a model may be large, or its entry wrong, and the
operator can mend it with `llmgw ctl apply` meanwhile.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from llmgw.ctl.catalog import apply_file
from llmgw.ctl.client import AdminClient
from llmgw.ctl.errors import CtlError
from llmgw.ctl.yaml_input import CatalogFile
from llmgw.up import model
from llmgw.up.admin import Admin
from llmgw.up.answer import NotYetError, ask, curl_line
from llmgw.up.console import own_command
from llmgw.up.errors import UpError
from llmgw.up.etcd import is_ready

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import aiohttp

    from ha.clock import Clock
    from llmgw.up.console import Console
    from llmgw.up.state import StateDir
    from llmgw.up.system import System

POLL_INTERVAL_S = 0.1
WATCH_INTERVAL_S = 0.5
ETCD_TIMEOUT_S = 60.0
LEADER_TIMEOUT_S = 60.0
AGENTS_TIMEOUT_S = 60.0
MODEL_TIMEOUT_S = 300.0
ANSWER_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the operator asked for. `catalog`: read and checked; None for the built-in model."""

    catalog: CatalogFile | None
    once: bool


class BringUp:
    """One system on its way up."""

    def __init__(
        self,
        system: System,
        *,
        state: StateDir,
        wishes: Wishes,
        console: Console,
        clock: Clock,
        session: aiohttp.ClientSession,
    ) -> None:
        self._system = system
        self._state = state
        self._wishes = wishes
        self._console = console
        self._clock = clock
        self._session = session
        self._admin = Admin(session, system.layout.admins)
        self.models: list[str] = []

    async def run(self, tasks: asyncio.TaskGroup) -> None:
        """Everything up to the first answer.

        Raises:
            UpError: it did not come up.
        """
        await self._start_etcd(tasks)
        system = self._system
        await system.start(system.control_planes, tasks)
        await system.start(system.router, tasks)
        await system.start(system.agents, tasks)
        await self._wait_leader()
        await self._wait_agents()
        system.is_up = True
        self.models = await self._apply_catalog()
        asked = await self._wait_models()
        if asked is not None:
            await self._show_answer(asked)
        await self._summarise(asked)

    async def _start_etcd(self, tasks: asyncio.TaskGroup) -> None:
        began_s = self._clock.now_s()
        await self._system.start(self._system.etcd, tasks)

        async def ready() -> bool:
            members = self._system.layout.etcd
            answers = [await is_ready(self._session, member) for member in members]
            return all(answers)

        await self._until("etcd is ready", ready, ETCD_TIMEOUT_S)
        members = len(self._system.layout.etcd)
        count = "1 member" if members == 1 else f"{members} members"
        self._console.step("etcd", f"ready in {self._since(began_s)} ({count})")

    async def _wait_leader(self) -> None:
        began_s = self._clock.now_s()

        async def led() -> dict[str, Any] | None:
            status = await self._admin.status()
            return status["leader"] if status else None

        leader = await self._until("a control plane leads", led, LEADER_TIMEOUT_S)
        count = len(self._system.control_planes)
        self._console.step(
            "control planes",
            f"{count} started, {leader['id']} leads (term {leader['term']}) "
            f"after {self._since(began_s)}",
        )

    async def _wait_agents(self) -> None:
        began_s = self._clock.now_s()
        wanted = {node.node_id for node in self._system.layout.nodes}

        async def attached() -> bool:
            status = await self._admin.status()
            agents = (status or {}).get("agents") or []
            ready = {a["node_id"] for a in agents if a["connected"] and a["state"] == "ready"}
            return wanted <= ready

        await self._until("all agents are attached", attached, AGENTS_TIMEOUT_S)
        count = len(wanted)
        self._console.step("agents", f"{count} of {count} attached after {self._since(began_s)}")

    async def _apply_catalog(self) -> list[str]:
        """Put the wanted catalog in force; the names of its models."""
        catalog = await self._until(
            "the catalog can be read", self._admin.catalog, LEADER_TIMEOUT_S
        )
        file, prune = self._wishes.catalog, True
        if file is None and model.wants_default(catalog["models"]):
            models = model.default_models(model.find_weights())
            file, prune = CatalogFile("the built-in catalog", models=models), False
        if file is None:
            names = [entry["name"] for entry in catalog["models"]]
            self._console.step("catalog", f"as it was left: {', '.join(names)}")
            return names
        client = AdminClient(self._system.layout.admins)
        try:
            result = await asyncio.to_thread(apply_file, client, file, prune=prune, force=True)
        except CtlError as error:
            raise UpError("\n".join(error.lines()).removeprefix("error: ")) from error
        self._console.step("catalog", f"{file.name}, revision {result['revision']}")
        return [entry["name"] for entry in file.models]

    async def _wait_models(self) -> str | None:
        """Wait for a replica of each model that wants one; the model to ask, if any."""
        began_s = self._clock.now_s()
        said: dict[str, str] = {}
        while True:
            status = await self._admin.status() or {}
            entries = {entry["name"]: entry for entry in status.get("models") or ()}
            wanted = [
                name
                for name in self.models
                if name not in entries or entries[name]["replicas_wanted"] > 0
            ]
            for name in wanted:
                line = _progress(entries.get(name), status.get("replicas") or ())
                if line == "ready":
                    line += f" after {self._since(began_s)}"
                if said.get(name, "").partition(" after ")[0] != line.partition(" after ")[0]:
                    said[name] = line
                    self._console.step(name, line)
            waiting = [name for name in wanted if not said[name].startswith("ready")]
            if not waiting:
                return wanted[0] if wanted else None
            self._check_patience(waiting, said, began_s)
            await asyncio.sleep(POLL_INTERVAL_S)

    def _check_patience(self, waiting: list[str], said: dict[str, str], began_s: float) -> None:
        """With `--once` nobody is there to mend a model that fails."""
        if not self._wishes.once:
            return
        failed = [name for name in waiting if said[name].startswith("failed")]
        if failed:
            raise UpError(f"model {failed[0]} {said[failed[0]]}")
        if self._clock.now_s() - began_s > MODEL_TIMEOUT_S:
            raise UpError(f"model {waiting[0]} is not ready after {MODEL_TIMEOUT_S:.0f} s")

    async def _show_answer(self, name: str) -> None:
        deadline_s = self._clock.now_s() + ANSWER_TIMEOUT_S
        began_s = self._clock.now_s()
        while True:
            first_s = None
            try:
                async for text in ask(self._session, self._system.layout.router, name):
                    if first_s is None:
                        first_s = self._clock.now_s() - began_s
                        self._console.write(f"\n{name}: ")
                    self._console.write(text)
            except NotYetError as error:
                if self._clock.now_s() >= deadline_s:
                    raise UpError(f"the router has no way to {name}: {error}") from error
                await asyncio.sleep(POLL_INTERVAL_S)
                continue
            if first_s is None:
                raise UpError(f"{name} gave an empty answer")
            self._console.write(f"\n\n(first token after {first_s:.2f} s)\n")
            return

    async def _summarise(self, asked: str | None) -> None:
        status = await self._admin.status()
        leader = (status or {}).get("leader") or {"id": "nobody", "term": "-"}
        layout = self._system.layout
        say = self._console.say
        say("")
        say(f"Router   {layout.router}/v1  (OpenAI-compatible)")
        if asked is not None:
            say(f"Try it   {curl_line(layout.router, asked)}")
        say(f"Leader   {leader['id']}, term {leader['term']}")
        say(f"Admin    {' '.join(layout.admins)}")
        say(f"Status   {own_command(sys.argv[0])} ctl --admin {','.join(layout.admins)} status")
        say(f"Logs     {self._state.logs}/<name>.log  ({', '.join(self._system.pids)})")

    async def announce_leaders(self) -> None:
        """Say who leads whenever that changes, until cancelled."""
        known: int | None = None
        while True:
            leader = ((await self._admin.status()) or {}).get("leader")
            if leader and leader["term"] != known:
                if known is not None:
                    self._console.say(f"{leader['id']} leads now (term {leader['term']})")
                known = leader["term"]
            await asyncio.sleep(WATCH_INTERVAL_S)

    async def _until(
        self, what: str, condition: Callable[[], Awaitable[Any]], timeout_s: float
    ) -> Any:
        deadline_s = self._clock.now_s() + timeout_s
        while not (found := await condition()):
            if self._clock.now_s() >= deadline_s:
                raise UpError(f"not within {timeout_s:.0f} s: {what}; see {self._state.logs}")
            await asyncio.sleep(POLL_INTERVAL_S)
        return found

    def _since(self, began_s: float) -> str:
        return f"{self._clock.now_s() - began_s:.1f} s"


def _progress(entry: dict[str, Any] | None, replicas: Any) -> str:
    """How far a model is, in a few words."""
    if entry is None:
        return "waiting for the control plane to see it"
    if entry["replicas_ready"] > 0:
        return "ready"
    states = [replica for replica in replicas if replica["model"] == entry["name"]]
    for replica in states:
        if replica["state"] == "failed":
            return f"failed: {replica['reason'] or entry['reason']}"
    if states:
        return f"{states[0]['state']} on {states[0]['node']} ..."
    return entry["reason"] or "waiting to be placed ..."
