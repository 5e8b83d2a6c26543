"""Settings of the whole suite."""

from __future__ import annotations

import os

# gRPC's core tells of every closed connection on standard error, in the middle of pytest's lines.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
