"""Files of TLS that do not belong together are refused by name, before anything starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from cryptography.hazmat.primitives import serialization

from llmgw.kit.settings import SettingsError
from llmgw.kit.tls import read_tls
from tests.support.certs import TestCa

if TYPE_CHECKING:
    from pathlib import Path


def test_a_good_pair_is_read(tmp_path: Path) -> None:
    ca = TestCa(tmp_path)
    pair = ca.issue("gpu-01")
    read = read_tls(ca.path, pair.certificate, pair.key)
    assert read == tuple(path.read_bytes() for path in (ca.path, pair.certificate, pair.key))


def test_the_key_of_another_certificate_is_said_so(tmp_path: Path) -> None:
    ca = TestCa(tmp_path)
    one, other = ca.issue("one"), ca.issue("other")
    with pytest.raises(SettingsError, match=r"other-key\.pem: the key is not that of"):
        read_tls(ca.path, one.certificate, other.key)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    ca = TestCa(tmp_path)
    pair = ca.issue("one")
    with pytest.raises(SettingsError, match=r"/nosuch\.pem: No such file or directory$"):
        read_tls(ca.path, pair.certificate, tmp_path / "nosuch.pem")


def test_what_is_not_pem_is_named(tmp_path: Path) -> None:
    ca = TestCa(tmp_path)
    pair = ca.issue("one")
    text = tmp_path / "text"
    text.write_text("hello")
    with pytest.raises(SettingsError, match=f"--tls-ca {text}: "):
        read_tls(text, pair.certificate, pair.key)
    with pytest.raises(SettingsError, match=f"--tls-key {text}: expected"):
        read_tls(ca.path, pair.certificate, text)


def test_a_key_with_a_password_is_refused_without_asking_for_it(tmp_path: Path) -> None:
    ca = TestCa(tmp_path)
    pair = ca.issue("one")
    key = serialization.load_pem_private_key(pair.key.read_bytes(), None)
    locked = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    pair.key.write_bytes(locked)
    with pytest.raises(SettingsError, match="not encrypted"):
        read_tls(ca.path, pair.certificate, pair.key)
