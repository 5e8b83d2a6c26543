"""What the router costs: CPU per request and per streamed chunk, beside aiohttp, nginx and direct.

CPU is what the proxy's process used (user + system) over a fixed number of requests; latency is
what one client sees; memory is what the process grows by (RSS) while many streams are open for the
first time. Chunks are paced 10 ms apart: without pauses a proxy reads several at once and looks
cheaper than it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp
import psutil

from bench.figures import line
from bench.mock_engine import CHUNKS
from ha.etcd import EtcdStore
from ha.store import Put
from llmgw.domain.catalog import Head, Model, document_bytes, document_hash
from llmgw.domain.endpoint import Endpoint
from llmgw.wire.keys import Keys
from tests.support.etcd import running_cluster
from tests.support.system import ROOT, free_port_base, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection

REQUESTS = 3000
AT_ONCE = 16
STREAMS = 30
OPEN_STREAMS = 200
ROUNDS = 5
OURS = "llmgw router"
REQUEST = {"model": "mock", "messages": [{"role": "user", "content": "x" * 1024}]}
NGINX = """
daemon off; worker_processes 1; error_log stderr crit; pid {folder}/nginx.pid;
events {{ worker_connections 1024; }}
http {{
  access_log off; client_body_temp_path {folder}; proxy_temp_path {folder};
  fastcgi_temp_path {folder}; uwsgi_temp_path {folder}; scgi_temp_path {folder};
  upstream engine {{ server 127.0.0.1:{engine}; keepalive 64; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://engine; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_buffering off;
    }}
  }}
}}
"""


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU microseconds per request and per chunk, median latency of a request, KiB per stream."""

    request_us: float
    chunk_us: float
    latency_s: float
    stream_kib: float


async def _serve(*argv: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *argv,
        cwd=ROOT,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )


@contextlib.asynccontextmanager
async def _ended(process: asyncio.subprocess.Process) -> AsyncIterator[psutil.Process]:
    try:
        yield psutil.Process(process.pid)
    finally:
        process.terminate()
        await process.wait()


async def _answers(url: str) -> bool:
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{url}/v1/chat/completions", json=REQUEST) as response,
    ):
        return response.status == 200


async def _requests(url: str, count: int, session: aiohttp.ClientSession) -> list[float]:
    loop = asyncio.get_running_loop()
    latencies: list[float] = []

    async def client(number: int) -> None:
        for _ in range(number):
            started_s = loop.time()
            async with session.post(f"{url}/v1/chat/completions", json=REQUEST) as response:
                await response.read()
            latencies.append(loop.time() - started_s)

    await asyncio.gather(*(client(count // AT_ONCE) for _ in range(AT_ONCE)))
    return latencies


async def _streams(url: str, session: aiohttp.ClientSession, count: int = STREAMS) -> int:
    async def client() -> int:
        request = {**REQUEST, "stream": True}
        async with session.post(f"{url}/v1/chat/completions", json=request) as response:
            return (await response.read()).count(b"data: {")

    return sum(await asyncio.gather(*(client() for _ in range(count))))


async def _memory_kib(
    url: str, session: aiohttp.ClientSession, process: psutil.Process | None
) -> float:
    """What a process grows by per stream, while many are open."""
    before = highest = _rss_bytes(process)
    streaming = asyncio.create_task(_streams(url, session, OPEN_STREAMS))
    while not streaming.done():
        await asyncio.sleep(0.05)
        highest = max(highest, _rss_bytes(process))
    await streaming
    return (highest - before) / OPEN_STREAMS / 1024


def _rss_bytes(process: psutil.Process | None) -> int:
    if process is None:
        return 0
    members = [process, *process.children(recursive=True)]
    return sum(int(member.memory_info().rss) for member in members)


def _cpu_s(process: psutil.Process | None) -> float:
    """What a program has used so far: by the scheduler's count, for its ticks are too coarse."""
    if process is None:
        return 0.0
    used_ns = 0
    for member in [process, *process.children(recursive=True)]:
        for thread in Path(f"/proc/{member.pid}/task").iterdir():
            used_ns += int((thread / "schedstat").read_text().split()[0])
    return used_ns / 1e9


class Subject:
    """One address under load; the CPU is the process's (None: direct, no proxy)."""

    def __init__(self, url: str, process: psutil.Process | None) -> None:
        self._url = url
        self._process = process
        self._costs: list[Cost] = []
        self._stream_kib = 0.0

    async def warm_up(self, session: aiohttp.ClientSession) -> None:
        await until(f"{self._url} answers", lambda: _answers(self._url), 30)
        await _requests(self._url, AT_ONCE * 20, session)
        self._stream_kib = await _memory_kib(self._url, session, self._process)

    async def round(self, session: aiohttp.ClientSession) -> None:
        before = _cpu_s(self._process)
        latencies = await _requests(self._url, REQUESTS, session)
        between = _cpu_s(self._process)
        chunks = await _streams(self._url, session)
        if chunks != STREAMS * CHUNKS:
            raise RuntimeError(f"{self._url} lost chunks: {chunks} of {STREAMS * CHUNKS}")
        after = _cpu_s(self._process)
        request_us = (between - before) / len(latencies) * 1e6
        chunk_us = (after - between) / chunks * 1e6
        latency_s = statistics.median(latencies)
        self._costs.append(Cost(request_us, chunk_us, latency_s, self._stream_kib))

    def cost(self) -> Cost:
        """The medians."""
        return Cost(
            statistics.median(cost.request_us for cost in self._costs),
            statistics.median(cost.chunk_us for cost in self._costs),
            statistics.median(cost.latency_s for cost in self._costs),
            self._stream_kib,
        )


async def measure(subjects: Collection[Subject]) -> None:
    """Load them in turns, so that what else this machine does falls on all of them alike."""
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        for subject in subjects:
            await subject.warm_up(session)
        for _ in range(ROUNDS):
            for subject in subjects:
                await subject.round(session)


async def _put_route(endpoint: str, engine: int) -> None:
    """Write what a leader would: one model, one endpoint."""
    keys = Keys()
    model = Model.model_validate(
        {"name": "mock", "profiles": [{"name": "p", "engine": "command", "args": ["x"]}]}
    )
    document = document_bytes(model)
    head = Head(models={"mock": document_hash(document)})
    route = Endpoint(
        replica_id="mock-1",
        url=f"http://127.0.0.1:{engine}",
        model="mock",
        served_model_name="mock",
        engine="command",
    )
    store = EtcdStore([endpoint])
    await store.txn(
        [],
        [
            Put(keys.catalog_document(document_hash(document)), document),
            Put(keys.catalog_head, head.model_dump_json().encode()),
            Put(keys.endpoint("mock-1"), route.model_dump_json().encode()),
        ],
        timeout_s=5,
    )
    await store.close()


async def run() -> None:
    """Measure direct, our router, aiohttp and, where it is installed, nginx."""
    print("router (one process; the client runs on the same machine):")
    base = free_port_base()
    engine, ours, theirs, plain = (f"http://127.0.0.1:{base + number}" for number in range(4))
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))

        async def started(*argv: str) -> psutil.Process:
            return await stack.enter_async_context(_ended(await _serve(*argv)))

        await started(sys.executable, "-m", "bench.mock_engine", str(base))
        etcd = stack.enter_context(running_cluster(folder / "etcd")).endpoints[0]
        await _put_route(etcd, base)
        router = [sys.executable, "-m", "llmgw", "router", "--listen", f"127.0.0.1:{base + 1}"]
        router += ["--etcd", etcd, "--state-dir", str(folder / "router")]
        proxy = [sys.executable, "-m", "bench.aiohttp_proxy", str(base + 2), engine]
        subjects = {
            "direct": Subject(engine, None),
            OURS: Subject(ours, await started(*router)),
            "aiohttp proxy": Subject(theirs, await started(*proxy)),
        }
        if nginx := shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/bin"):
            config = folder / "nginx.conf"
            config.write_text(NGINX.format(folder=folder, engine=base, port=base + 3))
            subjects["nginx"] = Subject(plain, await started(nginx, "-c", str(config)))
        await measure(subjects.values())
    _print({name: subject.cost() for name, subject in subjects.items()})


def _print(costs: dict[str, Cost]) -> None:
    ours = costs[OURS]
    for name, cost in costs.items():
        figure = f"latency p50 {cost.latency_s * 1000:.2f} ms"
        if name != "direct":
            figure = (
                f"{cost.request_us:.0f} us CPU a request, {cost.chunk_us:.0f} us a chunk, "
                f"{cost.stream_kib:.0f} KiB a stream, {figure}"
            )
        beside = ""
        if name not in {"direct", OURS}:
            beside = (
                f"ours costs {ours.request_us / cost.request_us:.2f} of it a request, "
                f"{ours.chunk_us / cost.chunk_us:.2f} a chunk"
            )
        line(name, figure, beside)
    direct = costs["direct"].latency_s
    line("router's share of the latency", f"{ours.latency_s / direct:.2f} x direct")
