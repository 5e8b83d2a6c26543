"""A small admin API for tests of its clients: answers as told, remembers what it was asked."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    Handler = Callable[[Any], tuple[int, Any]]


PROBE = "GET /healthz"  # a client looks whether anybody answers; not what a test asks about


class FakeAdmin:
    """One control plane's admin API. `answers` maps "METHOD /path" to a function of the body."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self.answers: dict[str, Handler] = {}
        self.asked: list[tuple[str, Any]] = []
        fake = self

        class Requests(BaseHTTPRequestHandler):
            def _answer(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else None
                key = f"{self.command} {self.path}"
                if key != PROBE:
                    fake.asked.append((key, body))
                status, answer = fake.answer(key, body)
                if status == 0:  # close without an answer
                    return
                content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = _answer  # noqa: N815 - the names http.server looks for

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer((host, 0), Requests)
        self._server.daemon_threads = True
        self.address = f"{host}:{self._server.server_address[1]}"
        self.url = f"http://{self.address}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def on(self, key: str, status: int, answer: Any) -> None:
        """Always answer so."""
        self.answers[key] = lambda _: (status, answer)

    def answer(self, key: str, body: Any) -> tuple[int, Any]:
        """What it was told to answer."""
        handler = self.answers.get(key)
        return handler(body) if handler is not None else (404, None)

    def stop(self) -> None:
        """Listen no more: connections are refused from now on."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def not_leader(leader: FakeAdmin | None) -> tuple[int, Any]:
    """The refusal of a standby that knows who leads."""
    named = leader and {
        "id": "cp-2",
        "term": 3,
        "agent_address": "",
        "admin_address": leader.address,
    }
    return 421, {
        "error": {"code": "not_leader", "message": "cp-1 stands by", "leader": named or None}
    }
