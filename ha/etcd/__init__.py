"""The only place that speaks to etcd: the v3 API on grpc.aio, made safe to lead by."""

from __future__ import annotations

from ha.etcd.channels import EtcdTls
from ha.etcd.store import EtcdStore
from ha.etcd.version import version_warning

__all__ = ["EtcdStore", "EtcdTls", "version_warning"]
