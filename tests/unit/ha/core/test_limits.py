"""The size estimate is never below what goes over the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from ha.core.limits import txn_bytes
from ha.etcd import wire_pb2 as wire
from ha.etcd.store import _compare, _operation
from ha.store import CreateRevisionIs, Delete, ModRevisionIs, Put

if TYPE_CHECKING:
    from ha.store import Compare, Write

KEYS = st.text(max_size=40)
REVISIONS = st.integers(0, 2**63 - 1)
COMPARES = st.builds(CreateRevisionIs, KEYS, REVISIONS) | st.builds(ModRevisionIs, KEYS, REVISIONS)
WRITES = st.builds(Put, KEYS, st.binary(max_size=300), REVISIONS) | st.builds(Delete, KEYS)


@given(st.lists(COMPARES, max_size=5), st.lists(WRITES, max_size=5))
def test_the_estimate_is_an_upper_bound(compares: list[Compare], writes: list[Write]) -> None:
    request = wire.TxnRequest(
        compare=[_compare(compare) for compare in compares],
        success=[_operation(write) for write in writes],
    )
    assert request.ByteSize() <= txn_bytes(compares, writes)
