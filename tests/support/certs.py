"""Certificates for tests: a CA, and leaves with any mix of common name, SAN and key usage.

`Authority` keeps them in memory, for our own link; `TestCa` in files, for programs.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from llmgw.kit import wall_now
from llmgw.wire.link import TlsFiles

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

CLIENT = (ExtendedKeyUsageOID.CLIENT_AUTH,)
SERVER = (ExtendedKeyUsageOID.SERVER_AUTH,)


@dataclass(frozen=True, slots=True)
class Authority:
    """A private CA."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @classmethod
    def create(cls, name: str = "test CA") -> Authority:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = _builder(subject, subject, key).add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        return cls(key, builder.sign(key, hashes.SHA256()))

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    def issue(
        self,
        common_name: str | None,
        *,
        dns: Sequence[str] = (),
        addresses: Sequence[str] = (),
        usage: Sequence[x509.ObjectIdentifier] = CLIENT,
        trust: bytes | None = None,
    ) -> TlsFiles:
        """A leaf and its key; `trust` is the CA its owner trusts (this one by default)."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = [] if common_name is None else [common_name]
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name) for name in names])
        builder = _builder(subject, self.certificate.subject, key).add_extension(
            x509.ExtendedKeyUsage(list(usage)), critical=False
        )
        sans: list[x509.GeneralName] = [x509.DNSName(name) for name in dns]
        sans += [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
        if sans:
            # An empty subject makes the SAN the only name: the standard wants it critical then.
            builder = builder.add_extension(
                x509.SubjectAlternativeName(sans), critical=common_name is None
            )
        certificate = builder.sign(self.key, hashes.SHA256())
        return TlsFiles(
            ca=trust or self.pem,
            certificate=certificate.public_bytes(serialization.Encoding.PEM),
            key=key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            ),
        )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = wall_now()
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(days=1))
    )


@dataclass(frozen=True)
class Pair:
    """Paths of a certificate and its key, PEM."""

    certificate: Path
    key: Path


class TestCa:
    """An authority whose certificates are files; its own is at `path`."""

    __test__ = False

    def __init__(self, directory: Path, name: str = "test-ca") -> None:
        self._directory = directory
        self._authority = Authority.create(name)
        self.path = directory / f"{name}.pem"
        self.path.write_bytes(self._authority.pem)

    def issue(self, common_name: str, addresses: Sequence[str] = ()) -> Pair:
        """A pair for clients, and for servers at these IP addresses."""
        files = self._authority.issue(common_name, addresses=addresses, usage=(*CLIENT, *SERVER))
        base = self._directory / common_name
        pair = Pair(base.with_name(f"{common_name}.pem"), base.with_name(f"{common_name}-key.pem"))
        pair.certificate.write_bytes(files.certificate)
        pair.key.write_bytes(files.key)
        return pair
