"""The election's state machine, event by event: each guarantee of its docstring has a test here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ha.core.election import (
    TRANSITIONS,
    Campaign,
    CampaignLost,
    CampaignUnknown,
    CampaignWon,
    Election,
    FenceBroken,
    IllegalTransitionError,
    LeaderKey,
    LeaderRead,
    LeaderSeen,
    LeaseGone,
    LeaseGranted,
    LeaseRenewed,
    ReadLeader,
    Resigned,
    Revoke,
    State,
    TermRaised,
    Ticked,
)
from ha.core.lease import Timing

if TYPE_CHECKING:
    from ha.core.election import Command, Event

TTL_S = 5.0
DEADLINE_AFTER_S = 4.5
LEASE = 77


class Bench:
    """An election with its time; jitter 0 makes back-offs the half of their full length."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.election = Election("me", Timing(lease_ttl_s=TTL_S))

    def feed(self, event: Event, *, after_s: float = 0.0) -> list[Command]:
        self.now_s += after_s
        return self.election.handle(event, now_s=self.now_s, jitter=0.0)

    def granted(self, lease_id: int = LEASE) -> list[Command]:
        return self.feed(LeaseGranted(lease_id, self.now_s, TTL_S))

    def renewed(self, *, sent_s: float | None = None, lease_id: int = LEASE) -> list[Command]:
        return self.feed(LeaseRenewed(lease_id, self.now_s if sent_s is None else sent_s, TTL_S))

    def campaigning(self) -> Campaign:
        self.feed(LeaderSeen(10, None))
        [command] = self.granted()
        assert isinstance(command, Campaign)
        return command

    def leading(self, create_revision: int = 20) -> Bench:
        call = self.campaigning().call
        assert self.feed(CampaignWon(call, 1, create_revision)) == []
        assert self.state is State.LEADING
        return self

    def frozen(self) -> Bench:
        self.leading().feed(Ticked(), after_s=DEADLINE_AFTER_S)
        assert self.state is State.FROZEN
        return self

    @property
    def state(self) -> State:
        return self.election.state

    def is_leader(self, after_s: float = 0.0) -> bool:
        return self.election.is_leader(self.now_s + after_s)


def other(create_revision: int, term: int = 2) -> LeaderKey:
    return LeaderKey("other", term, create_revision)


def test_it_campaigns_once_it_has_a_lease_and_has_seen_that_nobody_leads() -> None:
    bench = Bench()
    assert bench.granted() == []
    assert bench.feed(LeaderSeen(10, None)) == [Campaign(1, LEASE, 0)]


def test_it_stands_by_while_somebody_leads_and_campaigns_when_the_key_goes() -> None:
    bench = Bench()
    bench.granted()
    assert bench.feed(LeaderSeen(10, other(5, term=7))) == []
    assert bench.renewed() == []
    assert bench.feed(LeaderSeen(11, None)) == [Campaign(1, LEASE, 7)]


def test_it_does_not_campaign_with_a_lease_it_cannot_trust() -> None:
    bench = Bench()
    bench.granted()
    assert bench.feed(LeaderSeen(10, None), after_s=DEADLINE_AFTER_S) == []
    assert bench.renewed() == [Campaign(1, LEASE, 0)]


def test_leading_ends_at_the_deadline_by_comparison_alone() -> None:
    bench = Bench().leading()
    assert bench.is_leader(after_s=DEADLINE_AFTER_S - 0.001)
    assert not bench.is_leader(after_s=DEADLINE_AFTER_S)
    assert bench.state is State.LEADING, "nobody told it yet"


def test_the_deadline_counts_from_sending_and_never_goes_back() -> None:
    bench = Bench().leading()
    sent_s = bench.now_s + 1
    bench.feed(LeaseRenewed(LEASE, sent_s, TTL_S), after_s=3)
    assert bench.election.deadline_s == sent_s + DEADLINE_AFTER_S
    bench.renewed(sent_s=sent_s - 1)
    assert bench.election.deadline_s == sent_s + DEADLINE_AFTER_S


def test_an_answer_that_slept_with_the_process_does_not_thaw_it() -> None:
    bench = Bench().leading()
    sent_s = bench.now_s
    commands = bench.feed(LeaseRenewed(LEASE, sent_s, TTL_S), after_s=60)
    assert bench.state is State.FROZEN
    [read] = commands
    assert isinstance(read, ReadLeader)
    bench.feed(LeaderRead(read.call, LeaderKey("me", 1, 20, LEASE)))
    assert bench.state is State.FROZEN, "the key was there, but the lease is not to be trusted"


def test_a_frozen_leader_resumes_its_term_after_a_renewal_and_a_read() -> None:
    bench = Bench().frozen()
    [read] = bench.renewed()
    assert isinstance(read, ReadLeader)
    assert not bench.is_leader(), "a renewal alone proves nothing about the key"
    bench.feed(LeaderRead(read.call, LeaderKey("me", 1, 20, LEASE)))
    assert bench.state is State.LEADING
    assert bench.election.term == 1


def test_a_frozen_leader_asks_once_at_a_time() -> None:
    bench = Bench().frozen()
    assert len(bench.renewed()) == 1
    assert bench.renewed() == []


@pytest.mark.parametrize("found", [None, other(30), LeaderKey("me", 3, 40, LEASE)])
def test_a_frozen_leader_whose_key_is_not_there_stands_by(found: LeaderKey | None) -> None:
    bench = Bench().frozen()
    [read] = bench.renewed()
    assert isinstance(read, ReadLeader)
    bench.feed(LeaderRead(read.call, found))
    assert bench.state is State.STANDBY


@pytest.mark.parametrize("frozen", [False, True])
def test_losing_the_lease_ends_the_term(*, frozen: bool) -> None:
    bench = Bench().frozen() if frozen else Bench().leading()
    bench.feed(LeaseGone(LEASE))
    assert bench.state is State.STANDBY
    assert bench.election.lease_id == 0


def test_a_predecessors_late_delete_does_not_depose_the_successor() -> None:
    bench = Bench().leading(create_revision=20)
    bench.feed(LeaderSeen(18, other(12)))
    bench.feed(LeaderSeen(19, None))
    assert bench.state is State.LEADING
    bench.feed(LeaderSeen(20, None))
    assert bench.election.state is State.STANDBY


def test_a_younger_key_of_another_deposes() -> None:
    bench = Bench().leading(create_revision=20)
    bench.feed(LeaderSeen(30, other(30)))
    assert bench.state is State.STANDBY
    assert "'other' leads with term 2" in bench.election.reason


@pytest.mark.parametrize("found", [None, other(12)])
def test_a_store_that_went_back_in_time_freezes_until_a_read_has_told(
    found: LeaderKey | None,
) -> None:
    """A backup from before the victory: its lease is in it, and its leader key is not."""
    bench = Bench().leading(create_revision=20)
    bench.feed(LeaderSeen(30, LeaderKey("me", 1, 20)))
    assert bench.feed(LeaderSeen(15, found)) == []
    assert bench.state is State.FROZEN
    [read] = bench.renewed()
    assert isinstance(read, ReadLeader)
    bench.feed(LeaderRead(read.call, found))
    assert bench.election.state is State.STANDBY


def test_a_refused_write_deposes_only_the_leadership_that_made_it() -> None:
    bench = Bench().leading(create_revision=20)
    bench.feed(FenceBroken(11))
    assert bench.state is State.LEADING
    bench.feed(FenceBroken(20))
    assert bench.election.state is State.STANDBY


def test_after_a_loss_it_holds_back_longer_each_time() -> None:
    bench = Bench().leading()
    pauses = []
    for number in range(2, 9):
        bench.feed(LeaderSeen(number * 100 - 50, None))  # our key was deleted
        pauses.append(bench.election.not_before_s - bench.now_s)
        bench.renewed()
        bench.now_s = bench.election.not_before_s - 0.001
        bench.renewed()
        assert bench.state is State.STANDBY
        [campaign] = bench.feed(Ticked(), after_s=0.002)
        assert isinstance(campaign, Campaign)
        bench.feed(CampaignWon(campaign.call, number, number * 100))
    assert pauses == pytest.approx([1, 2, 4, 8, 15, 15, 15])


def test_a_stable_leadership_makes_earlier_losses_forgotten() -> None:
    bench = Bench().leading()
    bench.feed(LeaderSeen(50, None))
    bench.now_s = bench.election.not_before_s
    [campaign] = bench.renewed()
    bench.feed(CampaignWon(campaign.call if isinstance(campaign, Campaign) else 0, 2, 100))
    for _ in range(60):
        bench.now_s += 1
        bench.renewed()
    bench.feed(LeaderSeen(150, None))
    assert bench.election.not_before_s - bench.now_s == pytest.approx(1)


def test_a_lost_campaign_is_tried_again_a_little_later() -> None:
    bench = Bench()
    call = bench.campaigning().call
    assert bench.feed(CampaignLost(call, "another was quicker")) == []
    assert bench.state is State.STANDBY
    assert bench.feed(Ticked(), after_s=TTL_S / 6 - 0.01) == []
    assert bench.feed(Ticked(), after_s=0.02) == [Campaign(2, LEASE, 0)]


def test_an_unknown_outcome_is_read_and_may_be_a_victory() -> None:
    bench = Bench()
    call = bench.campaigning().call
    [read] = bench.feed(CampaignUnknown(call, "no answer"))
    assert isinstance(read, ReadLeader)
    bench.feed(LeaderRead(read.call, LeaderKey("me", 4, 20, LEASE)))
    assert bench.state is State.LEADING
    assert (bench.election.term, bench.election.create_revision) == (4, 20)


@pytest.mark.parametrize(
    "found", [None, other(20), LeaderKey("me", 4, 20, LEASE - 1)], ids=["none", "other", "old self"]
)
def test_an_unknown_outcome_is_read_and_may_be_none(found: LeaderKey | None) -> None:
    bench = Bench()
    call = bench.campaigning().call
    [read] = bench.feed(CampaignUnknown(call, "no answer"))
    assert isinstance(read, ReadLeader)
    bench.feed(LeaderRead(read.call, found))
    assert bench.state is State.STANDBY


def test_a_campaign_that_was_applied_after_all_is_recognised_by_the_watch() -> None:
    bench = Bench()
    call = bench.campaigning().call
    [read] = bench.feed(CampaignUnknown(call, "no answer"))
    assert isinstance(read, ReadLeader)
    bench.feed(LeaderRead(read.call, None))
    [again] = bench.feed(LeaderSeen(20, LeaderKey("me", 1, 20)))
    assert isinstance(again, ReadLeader)
    bench.feed(LeaderRead(again.call, LeaderKey("me", 1, 20, LEASE)))
    assert bench.state is State.LEADING


def test_the_key_of_an_earlier_process_of_the_same_name_is_waited_out() -> None:
    bench = Bench()
    bench.granted()
    [read] = bench.feed(LeaderSeen(20, LeaderKey("me", 1, 20)))
    assert isinstance(read, ReadLeader)
    bench.feed(LeaderRead(read.call, LeaderKey("me", 1, 20, LEASE - 1)))
    assert bench.feed(LeaderSeen(21, LeaderKey("me", 1, 20))) == []
    assert bench.state is State.STANDBY
    bench.now_s = bench.election.not_before_s
    assert bench.feed(LeaderSeen(22, None)) == [Campaign(2, LEASE, 1)]


def test_a_victory_after_the_deadline_is_frozen() -> None:
    bench = Bench()
    call = bench.campaigning().call
    bench.feed(CampaignWon(call, 1, 20), after_s=DEADLINE_AFTER_S)
    assert bench.state is State.FROZEN


def test_answers_to_older_calls_change_nothing() -> None:
    bench = Bench()
    call = bench.campaigning().call
    bench.feed(LeaseGone(LEASE))
    assert bench.state is State.STANDBY
    bench.feed(CampaignWon(call, 1, 20))
    assert bench.state is State.STANDBY, "that key hangs on a lease that is gone"
    bench.feed(LeaderRead(call - 1, LeaderKey("me", 1, 20, LEASE)))
    assert bench.state is State.STANDBY


def test_news_of_an_older_lease_changes_nothing() -> None:
    bench = Bench().leading()
    bench.feed(LeaseGone(LEASE - 1))
    deadline_s = bench.election.deadline_s
    bench.feed(LeaseRenewed(LEASE - 1, bench.now_s + 1, TTL_S), after_s=1)
    assert bench.state is State.LEADING
    assert bench.election.deadline_s == deadline_s


def test_resigning_ends_the_term_gives_the_lease_back_and_holds_back() -> None:
    bench = Bench().leading()
    assert bench.feed(Resigned("maintenance")) == [Revoke(LEASE)]
    assert bench.state is State.STANDBY
    assert bench.feed(LeaderSeen(30, None)) == []
    assert bench.granted(LEASE + 1) == []
    assert bench.feed(Ticked(), after_s=1.0) == [Campaign(2, LEASE + 1, 1)]


def test_a_standby_may_resign_too() -> None:
    bench = Bench()
    bench.granted()
    assert bench.feed(Resigned("shutting down")) == [Revoke(LEASE)]
    assert bench.feed(Resigned("again")) == []
    bench.granted(LEASE + 1)
    assert bench.feed(LeaderSeen(10, None)) == [], "it holds back"


def test_resigning_while_campaigning_forgets_the_campaign() -> None:
    bench = Bench()
    call = bench.campaigning().call
    assert bench.feed(Resigned("shutting down")) == [Revoke(LEASE)]
    assert bench.feed(CampaignWon(call, 1, 20)) == []
    assert bench.state is State.STANDBY


def test_a_raised_term_is_this_leaderships_term() -> None:
    bench = Bench().leading(create_revision=20)
    bench.feed(TermRaised(20, 50))
    assert bench.election.term == 50
    bench.feed(TermRaised(11, 99))
    assert bench.election.term == 50
    bench.feed(LeaderSeen(25, LeaderKey("me", 60, 20)))
    assert bench.election.term == 60, "a raise whose answer was lost shows in the key"
    assert bench.state is State.LEADING


def test_next_wake_is_the_deadline_or_the_end_of_holding_back() -> None:
    bench = Bench()
    assert bench.election.next_wake_s() is None
    bench.leading()
    assert bench.election.next_wake_s() == bench.now_s + DEADLINE_AFTER_S
    bench.feed(LeaderSeen(30, None))
    assert bench.election.next_wake_s() == bench.now_s + 1
    bench.feed(LeaderSeen(31, other(31)))
    assert bench.election.next_wake_s() is None


def test_an_impossible_event_raises_and_tells_its_story() -> None:
    bench = Bench().leading()
    with pytest.raises(IllegalTransitionError, match="granted lease 4e while holding 4d") as caught:
        bench.granted(LEASE + 1)
    assert "campaigning CampaignWon(call=1" in str(caught.value)
    with pytest.raises(IllegalTransitionError, match="never made"):
        bench.feed(CampaignWon(9, 9, 9))


def test_terms_rise_strictly_or_it_raises() -> None:
    bench = Bench().leading()
    bench.feed(LeaderSeen(30, None))
    bench.now_s = bench.election.not_before_s
    [campaign] = bench.feed(Ticked())
    assert isinstance(campaign, Campaign)
    assert campaign.above_term == 1
    with pytest.raises(IllegalTransitionError, match="won term 1 after term 1"):
        bench.feed(CampaignWon(campaign.call, 1, 40))


def test_the_table_names_every_state_and_reaches_leading_only_by_campaign_or_thaw() -> None:
    assert set(TRANSITIONS) == set(State)
    reaches = {state for state, targets in TRANSITIONS.items() if State.LEADING in targets}
    assert reaches == {State.CAMPAIGNING, State.FROZEN}
