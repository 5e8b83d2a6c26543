"""A view of a prefix: what a listing replaces, and which batches may not follow it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ha.core.watch import Item, View
from ha.store import Change, KeyValue, Listing, WatchBatch

CLUSTER = 7


def listing(revision: int, *items: KeyValue, cluster_id: int = CLUSTER) -> Listing:
    return Listing(items, revision, cluster_id)


def batch(*changes: Change, resume: int, cluster_id: int = CLUSTER) -> WatchBatch:
    return WatchBatch(changes, resume, cluster_id)


def test_a_listing_tells_what_was_deleted_changed_and_added_in_the_gap() -> None:
    view = View()
    view.replace(listing(3, KeyValue("a", b"1", 1, 1), KeyValue("b", b"2", 2, 2)))
    changes = view.replace(listing(9, KeyValue("b", b"3", 2, 7), KeyValue("c", b"4", 8, 8)))
    assert changes == (
        Change("a", None, 9),
        Change("b", b"3", 7, 2),
        Change("c", b"4", 8, 8),
    )
    assert view.items == {"b": Item(b"3", 7, 2), "c": Item(b"4", 8, 8)}
    assert view.watch_from_revision == 10


def test_a_key_deleted_and_created_again_in_the_gap_is_a_change_though_its_value_is_the_same() -> (
    None
):
    view = View()
    view.replace(listing(3, KeyValue("a", b"1", 1, 1)))
    assert view.replace(listing(9, KeyValue("a", b"1", 8, 8))) == (Change("a", b"1", 8, 8),)


def test_batches_move_the_view_on() -> None:
    view = View()
    view.replace(listing(3, KeyValue("a", b"1", 1, 1)))
    step = batch(Change("a", None, 5), Change("b", b"2", 6, 6), resume=7)
    assert view.distrust(step) is None
    view.apply(step)
    assert view.items == {"b": Item(b"2", 6, 6)}
    assert view.revision == 6
    view.apply(batch(resume=20))
    assert view.revision == 19, "a store that says more is delivered is believed"


def test_another_cluster_is_not_believed() -> None:
    view = View()
    view.replace(listing(3))
    why = view.distrust(batch(Change("a", b"1", 4, 4), resume=5, cluster_id=8))
    assert why is not None
    assert "another store" in why


def test_a_store_that_goes_back_is_not_believed() -> None:
    view = View()
    view.replace(listing(3))
    why = view.distrust(batch(Change("a", b"1", 3, 3), Change("b", b"1", 4, 4), resume=5))
    assert why is not None
    assert "went back" in why


def test_a_listing_of_a_restored_store_is_the_truth_all_the_same() -> None:
    view = View()
    view.replace(listing(90, KeyValue("a", b"1", 80, 80)))
    assert view.replace(listing(10, cluster_id=8)) == (Change("a", None, 10),)
    assert (view.revision, view.cluster_id) == (10, 8)


KEYS = st.sampled_from("abcd")
STEPS = st.lists(st.tuples(KEYS, st.none() | st.binary(max_size=2)), max_size=30)


@given(STEPS, st.integers(0, 30))
def test_a_view_kept_by_batches_equals_one_listed_at_the_end(
    steps: list[tuple[str, bytes | None]], cut: int
) -> None:
    """Whatever part of the history came by listing, the rest by watching."""
    truth: dict[str, KeyValue] = {}
    changes = []
    view, listed = View(), False
    for revision, (key, value) in enumerate(steps, start=1):
        if revision == cut:
            view.replace(listing(revision - 1, *truth.values()))
            listed = True
        created = truth[key].create_revision if key in truth else revision
        if value is None:
            truth.pop(key, None)
        else:
            truth[key] = KeyValue(key, value, created, revision)
        change = Change(key, value, revision, created if value is not None else 0)
        if listed:
            view.apply(batch(change, resume=revision + 1))
        changes.append(change)
    if not listed:
        view.replace(listing(len(steps), *truth.values()))
    fresh = View()
    fresh.replace(listing(len(steps), *truth.values()))
    assert view == fresh
