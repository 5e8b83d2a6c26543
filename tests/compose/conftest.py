"""Settings testcontainers reads when it is imported, hence here and not in the tests."""

from __future__ import annotations

import os

# Its reaper's image would have to be pulled; these tests clean up themselves.
os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")
# Published ports are bound to loopback; without this it may ask at the bridge's address.
os.environ.setdefault("TESTCONTAINERS_HOST_OVERRIDE", "127.0.0.1")
