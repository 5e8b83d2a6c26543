"""Which paths lead where, and which headers pass."""

from __future__ import annotations

import pytest

from llmgw.router.headers import for_client, for_engine, request_id
from llmgw.router.routes import Kind, find_route


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/v1/chat/completions", Kind.PROXY),
        ("/v1/audio/speech", Kind.PROXY),
        ("/v1/images/a/b_c-d", Kind.PROXY),
        ("/v1/models", Kind.MODELS),
        ("/v1/models/org/m:q4", Kind.MODEL),
        ("/healthz", Kind.HEALTH),
        ("/readyz", Kind.READY),
        ("/metrics", Kind.METRICS),
    ],
)
def test_paths_that_exist(path: str, kind: Kind) -> None:
    route = find_route(path)
    assert route is not None
    assert route.kind is kind


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "/v1",
        "/v1/models/",
        "/v1/audio",
        "/v1/audio/",
        "/v1/audio//x",
        "/v1/audio/../metrics",
        "/v1/audio/x?y",
        "/v1/audio/x\r\nhost: y",
        "/v1/audio/é",
        "/v1/chat/completions/",
        "/health",
    ],
)
def test_paths_that_do_not(path: str) -> None:
    assert find_route(path) is None


def test_a_models_id_is_everything_after_the_prefix() -> None:
    route = find_route("/v1/models/org/m/x")
    assert route is not None
    assert route.argument == "org/m/x"


HOP = [(b"connection", b"close, X-Mine"), (b"te", b"t"), (b"upgrade", b"h2c"), (b"x-mine", b"1")]


def test_hop_by_hop_headers_stop_here_and_others_pass_in_order() -> None:
    kept = [(b"x-b", b"1"), (b"x-a", b"2"), (b"x-b", b"3")]
    assert for_engine([*kept, *HOP, (b"cookie", b"c"), (b"host", b"h")]) == kept
    assert for_client([*kept, *HOP, (b"set-cookie", b"c"), (b"server", b"s")]) == kept


@pytest.mark.parametrize("value", [b"", b"a b", b"x" * 129, b"\xc3\xa9"])
def test_a_request_id_that_cannot_be_one_is_replaced(value: bytes) -> None:
    assert request_id([(b"x-request-id", value)]) != value
    assert len(request_id([])) == 32


def test_a_request_id_is_taken_over() -> None:
    assert request_id([(b"x-request-id", b"abc-1")]) == b"abc-1"
