"""Settings of `llmgw control`: flags, environment, file, defaults, in that order."""

from __future__ import annotations

import socket
from pathlib import Path  # noqa: TC003 - pydantic reads it at run time
from typing import Literal

from pydantic import Field, model_validator

from llmgw.kit.settings import Settings


class ControlSettings(Settings):
    """Everything one control plane is told. Times in seconds."""

    id: str = Field(default_factory=socket.gethostname, min_length=1)
    cluster: str = Field(default="default", min_length=1)
    etcd: list[str] = Field(min_length=1)
    etcd_ca: Path | None = None
    etcd_cert: Path | None = None
    etcd_key: Path | None = None
    etcd_user: str = ""
    etcd_password_file: Path | None = None
    agent_listen: str = "127.0.0.1:8443"
    agent_address: str = ""
    admin_listen: str = "127.0.0.1:8081"
    admin_address: str = ""
    lease_ttl_s: float = Field(default=5.0, ge=2.0, le=300.0)
    heartbeat_interval_s: float = Field(default=4.0, gt=0, le=300.0)
    suspect_after_s: float = Field(default=15.0, gt=0)
    lost_after_s: float = Field(default=90.0, gt=0)
    settle_cap_s: float = Field(default=30.0, ge=0)
    engine_port_first: int = Field(default=20_000, ge=1024, le=65_535)
    engine_port_count: int = Field(default=10_000, ge=1)
    tls_ca: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    insecure: bool = False
    journal: Path | None = None
    log_format: Literal["console", "json"] = "console"

    @model_validator(mode="after")
    def _together(self) -> ControlSettings:
        tls = (self.tls_ca, self.tls_cert, self.tls_key)
        if self.insecure == any(tls) or (any(tls) and not all(tls)):
            raise ValueError("give --tls-ca, --tls-cert and --tls-key together, or --insecure")
        etcd_tls = (self.etcd_ca, self.etcd_cert, self.etcd_key)
        if any(etcd_tls) and not all(etcd_tls):
            raise ValueError("give --etcd-ca, --etcd-cert and --etcd-key together")
        if self.etcd_user and self.etcd_password_file is None:
            raise ValueError("--etcd-user needs --etcd-password-file")
        if self.lost_after_s < self.suspect_after_s:
            raise ValueError("--lost-after-s must not be below --suspect-after-s")
        if self.engine_port_first + self.engine_port_count > 65_536:  # noqa: PLR2004 - ports
            raise ValueError("--engine-port-first plus --engine-port-count goes above port 65535")
        return self
