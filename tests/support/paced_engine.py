"""An engine for tests: a small OpenAI-compatible server whose pace and faults are chosen by flags.

Run as a program (standard library only), usually by an agent as an engine of kind `command`:

    python tests/support/paced_engine.py --port 0 --tokens 20 --token-interval-s 0.05

It prints `listening on HOST:PORT` and then one line per request. `GET /health` and every other
path answer 503 until `--load-s` have passed. `POST /v1/chat/completions` and `/v1/completions`
answer with `--tokens` tokens (or the request's `max_tokens`, whichever the request says), paced by
`--token-interval-s`, as one body or, with `"stream": true`, as server-sent events. The answer's
`model` is the one that was asked for.

`--record FILE` appends one JSON object a line: `start` {pid}, `request` {method, path, model,
stream, pid}, `done` {path, tokens} and `closed_early` {path, tokens}: the client left first.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import fcntl
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

CLOSED_CHECK_S = 0.02
PR_SET_NAME = 15


class ClientLeftError(Exception):
    """The client closed its connection before the answer was whole."""


class Record:
    """Append-only JSON lines, or nothing without a path."""

    def __init__(self, path: str) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._file = os.open(path, flags, 0o644) if path else None

    def write(self, event: str, **facts: object) -> None:
        if self._file is not None:
            line = json.dumps({"event": event, "pid": os.getpid(), **facts})
            os.write(self._file, line.encode() + b"\n")


class PacedEngine:
    """One server; `handle` serves one connection, with keep-alive."""

    def __init__(self, options: argparse.Namespace, record: Record) -> None:
        self._options = options
        self._record = record
        self._loaded_at = asyncio.get_running_loop().time() + options.load_s
        self._answers = 0

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._serve_one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, ClientLeftError):
            pass
        finally:
            writer.close()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        line = await reader.readline()
        if not line.strip():
            return False
        method, target, _ = line.decode("latin-1").split(" ", 2)
        headers: dict[str, str] = {}
        while (header := (await reader.readline()).decode("latin-1").strip()) != "":
            name, _, value = header.partition(":")
            headers[name.lower()] = value.strip()
        body = await _read_body(reader, headers)
        path = target.partition("?")[0]
        if asyncio.get_running_loop().time() < self._loaded_at:
            _respond(writer, 503, {"error": {"message": "loading model", "code": 503}})
        elif path == "/health":
            _respond(writer, 200, {"status": "ok"})
        elif path == "/v1/models":
            item = {"id": self._options.model, "object": "model", "owned_by": "tests"}
            _respond(writer, 200, {"object": "list", "data": [item]})
        elif method == "POST" and path in {"/v1/chat/completions", "/v1/completions"}:
            await self._complete(path, json.loads(body), reader, writer)
        else:
            _respond(writer, 404, {"error": {"message": f"no such path {path}", "code": 404}})
        await writer.drain()
        return headers.get("connection", "").lower() != "close"

    async def _complete(
        self,
        path: str,
        request: dict[str, Any],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        stream = bool(request.get("stream"))
        model = str(request.get("model", ""))
        self._record.write("request", method="POST", path=path, model=model, stream=stream)
        sys.stdout.write(f"request {path} model={model} stream={stream}\n")
        if self._options.log_burst_bytes:
            sys.stdout.write("x" * self._options.log_burst_bytes + "\n")
        sys.stdout.flush()
        tokens = int(request.get("max_tokens") or self._options.tokens)
        self._answers += 1
        answer_id = f"paced-{os.getpid()}-{self._answers}"
        sent = 0
        try:
            if stream:
                writer.write(
                    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
                    b"transfer-encoding: chunked\r\n\r\n"
                )
                for sent in range(tokens):
                    await self._pause(reader, writer)
                    event = _chunk(path, answer_id, model, f"t{sent} ", last=sent == tokens - 1)
                    _write_chunk(writer, f"data: {json.dumps(event)}\n\n".encode())
                    await writer.drain()
                _write_chunk(writer, b"data: [DONE]\n\n")
                writer.write(b"0\r\n\r\n")
            else:
                for sent in range(tokens):  # noqa: B007 - read after the loop is left early
                    await self._pause(reader, writer)
                _respond(writer, 200, _whole(path, answer_id, model, tokens))
        except (ConnectionError, ClientLeftError):
            self._record.write("closed_early", path=path, tokens=sent)
            raise
        self._record.write("done", path=path, tokens=tokens)

    async def _pause(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One token's time; raises ClientLeftError soon after the client has gone."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._options.token_interval_s
        while True:
            if reader.at_eof() or writer.is_closing():
                raise ClientLeftError
            left_s = until - loop.time()
            if left_s <= 0:
                return
            await asyncio.sleep(min(left_s, CLOSED_CHECK_S))


async def _read_body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    if "chunked" not in headers.get("transfer-encoding", "").lower():
        return await reader.readexactly(int(headers.get("content-length", "0")))
    body = b""
    while size := int((await reader.readline()).split(b";")[0], 16):
        body += await reader.readexactly(size)
        await reader.readline()
    await reader.readline()
    return body


def _respond(writer: asyncio.StreamWriter, status: int, body: dict[str, Any]) -> None:
    content = json.dumps(body).encode()
    reason = {200: "OK", 404: "Not Found", 503: "Service Unavailable"}[status]
    head = (
        f"HTTP/1.1 {status} {reason}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(content)}\r\n\r\n"
    )
    writer.write(head.encode() + content)


def _write_chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


def _chunk(path: str, answer_id: str, model: str, text: str, *, last: bool) -> dict[str, Any]:
    chat = path == "/v1/chat/completions"
    choice: dict[str, Any] = {"index": 0, "finish_reason": "length" if last else None}
    choice |= {"delta": {"content": text}} if chat else {"text": text}
    kind = "chat.completion.chunk" if chat else "text_completion"
    return {"id": answer_id, "object": kind, "created": 0, "model": model, "choices": [choice]}


def _whole(path: str, answer_id: str, model: str, tokens: int) -> dict[str, Any]:
    chat = path == "/v1/chat/completions"
    text = "".join(f"t{number} " for number in range(tokens))
    choice: dict[str, Any] = {"index": 0, "finish_reason": "length"}
    choice |= {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
    return {
        "id": answer_id,
        "object": "chat.completion" if chat else "text_completion",
        "created": 0,
        "model": model,
        "choices": [choice],
        "usage": {"prompt_tokens": 1, "completion_tokens": tokens, "total_tokens": tokens + 1},
    }


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--model", default="paced", help="what /v1/models names")
    parser.add_argument("--tokens", type=int, default=20, help="tokens of one answer")
    parser.add_argument("--token-interval-s", type=float, default=0.05)
    parser.add_argument("--load-s", type=float, default=0.0, help="503 for so long")
    parser.add_argument("--exit-code-at-once", type=int, help="print a line and exit so")
    parser.add_argument("--ignore-term", action="store_true", help="only SIGKILL ends it")
    parser.add_argument("--fork-workers", type=int, default=0, help="children in its group")
    parser.add_argument("--worker-lock", default="", help="file the first worker keeps locked")
    parser.add_argument("--log-interval-s", type=float, default=0.0, help="print a line so often")
    parser.add_argument("--log-burst-bytes", type=int, default=0, help="printed per request")
    parser.add_argument("--process-name", default="", help="PR_SET_NAME; \\xNN for bytes")
    parser.add_argument("--record", default="", help="append what happens to this file")
    return parser.parse_args()


def _fork_workers(count: int, lock: str) -> None:
    """Children that outlive this process: they ignore HUP, and one holds the lock ("the GPU")."""
    for number in range(count):
        if os.fork() == 0:
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            if lock and number == 0:
                descriptor = os.open(lock, os.O_WRONLY | os.O_CREAT, 0o644)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    sys.stdout.write("the lock is held by another worker\n")
                    sys.stdout.flush()
                    os._exit(9)
            while True:
                signal.pause()


def _rename(name: str) -> None:
    raw = name.encode("latin-1").decode("unicode_escape").encode("latin-1")
    ctypes.CDLL(None).prctl(PR_SET_NAME, ctypes.c_char_p(raw), 0, 0, 0)


async def _log_lines(interval_s: float) -> None:
    number = 0
    while True:
        await asyncio.sleep(interval_s)
        number += 1
        sys.stdout.write(f"line {number}\n")
        sys.stdout.flush()


async def _run(options: argparse.Namespace) -> None:
    record = Record(options.record)
    record.write("start")
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, (lambda: None) if options.ignore_term else stop.set)
    engine = PacedEngine(options, record)
    server = await asyncio.start_server(engine.handle, options.host, options.port)
    host, port = server.sockets[0].getsockname()[:2]
    sys.stdout.write(f"listening on {host}:{port}\n")
    sys.stdout.flush()
    if options.log_interval_s:
        lines = asyncio.create_task(_log_lines(options.log_interval_s))
        stop_task = asyncio.create_task(stop.wait())
        await asyncio.wait({lines, stop_task}, return_when=asyncio.FIRST_COMPLETED)
    else:
        await stop.wait()
    record.write("stop")


def main() -> None:
    options = _options()
    if options.process_name:
        _rename(options.process_name)
    if options.exit_code_at_once is not None:
        sys.stdout.write("Traceback: something the engine says\n")
        sys.stdout.write(f"fatal: exiting with {options.exit_code_at_once} as asked\n")
        sys.stdout.flush()
        sys.exit(options.exit_code_at_once)
    _fork_workers(options.fork_workers, options.worker_lock)
    try:
        asyncio.run(_run(options))
    except OSError as error:
        sys.exit(f"cannot listen on {options.host}:{options.port}: {error}")
    sys.stdout.write(f"{Path(__file__).name} stopped\n")
    sys.stdout.flush()
    # Children are ours to end: a front process that stops in order takes its workers along.
    if options.fork_workers:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.killpg(0, signal.SIGTERM)


if __name__ == "__main__":
    main()
