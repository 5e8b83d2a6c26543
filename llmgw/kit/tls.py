"""Files of TLS, read and checked before anything listens or dials.

gRPC takes what it is given and says later, in words of its own, that a port cannot be bound or a
peer not be reached. Here a pair that does not belong together is refused with its files' names.
Who may trust whom is not decided here.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from llmgw.kit.settings import SettingsError

if TYPE_CHECKING:
    from pathlib import Path


def read_tls(ca: Path, certificate: Path, key: Path) -> tuple[bytes, bytes, bytes]:
    """The content of the three files.

    Raises:
        SettingsError: one cannot be read or used; the message names it.
    """
    content = (_read(ca), _read(certificate), _read(key))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_verify_locations(ca)
    except ssl.SSLError as error:
        raise SettingsError(f"--tls-ca {ca}: this is not a certificate in PEM form") from error
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            reason = "the key is not that of the certificate"
        else:
            reason = "expected a certificate and its key, not encrypted, both in PEM form"
        raise SettingsError(f"--tls-cert {certificate}, --tls-key {key}: {reason}") from error
    return content


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from error


def _no_password() -> str:
    return ""  # without this, OpenSSL asks for one on the terminal
