"""What an operator may write as an endpoint, which versions are warned of, where a prefix ends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ha.etcd import EtcdStore, version_warning
from ha.etcd.channels import parse_endpoint
from ha.etcd.watching import prefix_end


@pytest.mark.parametrize(
    ("text", "tls", "address"),
    [
        ("localhost:2379", False, "localhost:2379"),
        ("localhost:2379", True, "localhost:2379"),
        ("http://10.0.0.1:2379/", False, "10.0.0.1:2379"),
        ("https://[::1]:2379", True, "[::1]:2379"),
    ],
)
def test_endpoints_are_host_and_port(text: str, *, tls: bool, address: str) -> None:
    assert parse_endpoint(text, tls=tls) == address


@pytest.mark.parametrize(
    ("text", "tls", "reason"),
    [
        ("localhost", False, "not HOST:PORT"),
        (":2379", False, "not HOST:PORT"),
        ("", False, "not HOST:PORT"),
        ("localhost:client", False, "not HOST:PORT"),
        ("unix://localhost:1", False, "http or https"),
        ("https://localhost:2379", False, "calls for a CA"),
        ("http://localhost:2379", True, "no certificates"),
    ],
)
def test_what_is_no_endpoint_is_refused_in_words(text: str, *, tls: bool, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_endpoint(text, tls=tls)


def test_a_store_without_endpoints_is_refused() -> None:
    with pytest.raises(ValueError, match="no etcd endpoint"):
        EtcdStore([])


@pytest.mark.parametrize("version", ["3.4.42", "3.5.28", "3.5.30", "3.6.9", "3.7.0", "4.0.0"])
def test_sound_versions_are_not_warned_of(version: str) -> None:
    assert version_warning(version) is None


@pytest.mark.parametrize(
    ("version", "reason"),
    [
        ("3.4.41", "upgrade to 3.4.42"),
        ("3.5.1", "upgrade to 3.5.28"),
        ("3.6.8", "upgrade to 3.6.9"),
        ("3.3.27", "not supported"),
        ("main", "not a version"),
    ],
)
def test_faulty_versions_are_warned_of(version: str, reason: str) -> None:
    warning = version_warning(version)
    assert warning is not None
    assert reason in warning


@given(st.binary(max_size=4), st.binary(max_size=4))
def test_a_range_holds_exactly_the_keys_with_the_prefix(prefix: bytes, key: bytes) -> None:
    end = prefix_end(prefix)
    within = key >= prefix and (end == b"\0" or key < end)
    assert within == key.startswith(prefix)
