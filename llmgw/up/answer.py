"""The first question to the model, through the router, as any client would ask it."""

from __future__ import annotations

import json
import shlex
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import aiohttp

from llmgw.up.errors import UpError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

QUESTION = "What is the capital of France? Answer in one sentence."
TOKENS_MAX = 64
PATH = "/v1/chat/completions"
_NOT_YET = (HTTPStatus.NOT_FOUND, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.BAD_GATEWAY)
_TIMEOUT = aiohttp.ClientTimeout(total=None, connect=5, sock_read=120)


class NotYetError(Exception):
    """The router does not know the model yet, or no replica of it."""


def request_body(model: str) -> dict[str, Any]:
    """The request that is sent, and that the printed curl line sends too."""
    return {
        "model": model,
        "stream": True,
        "max_tokens": TOKENS_MAX,
        "messages": [{"role": "user", "content": QUESTION}],
    }


def curl_line(router: str, model: str) -> str:
    """The same question as a command that works as printed."""
    body = json.dumps(request_body(model))
    header = shlex.quote("Content-Type: application/json")
    return f"curl -N {router}{PATH} -H {header} -d {shlex.quote(body)}"


async def ask(session: aiohttp.ClientSession, router: str, model: str) -> AsyncIterator[str]:
    """The answer's text, piece by piece as it comes.

    Raises:
        NotYetError: the router has no way to the model yet.
        UpError: the model does not answer.
    """
    try:
        async with session.post(
            router + PATH, json=request_body(model), timeout=_TIMEOUT
        ) as answer:
            if answer.status in _NOT_YET:
                raise NotYetError(await _reason(answer))
            if answer.status != HTTPStatus.OK:
                raise UpError(
                    f"{model} does not answer: HTTP {answer.status}: {await _reason(answer)}"
                )
            async for line in answer.content:
                if text := _text_of(line.decode("utf-8", "replace").strip()):
                    yield text
    except aiohttp.ClientConnectorError as error:
        raise NotYetError(str(error)) from error
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        raise UpError(f"{model} does not answer: {str(error) or type(error).__name__}") from error


async def _reason(answer: aiohttp.ClientResponse) -> str:
    text = await answer.text()
    try:
        return str(json.loads(text)["error"]["message"])
    except (ValueError, LookupError, TypeError):
        return text[:200]


def _text_of(line: str) -> str:
    """The text of one server-sent event.

    Raises:
        UpError: it is an error event.
    """
    data = line.removeprefix("data:").strip() if line.startswith("data:") else ""
    if not data or data == "[DONE]":
        return ""
    event = json.loads(data)
    if "error" in event:
        raise UpError(f"the answer broke off: {event['error'].get('message', event['error'])}")
    choices = event.get("choices") or [{}]
    return str((choices[0].get("delta") or {}).get("content") or "")
