"""Leadership and elections, in any order of events: see `tests/support/election_model.py` for the invariants.

`ROCKETLET_ELECTION_STEPS` sets more steps than the suite has time for: 1000000 takes some minutes.

The second half plants a fault in each central rule, and checks that the model finds it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rocketlet.failover.candidacy import Candidacy, Decision, Stand
from rocketlet.failover.coordinator import View
from rocketlet.failover.epochs import Epochs
from rocketlet.failover.in_sync import InSync
from tests.support import election_model
from tests.support.election_model import Cluster, Drawn
from tests.support.properties import examples

STEPS = int(os.environ.get("ROCKETLET_ELECTION_STEPS", "0"))
LONG = 2500
LIVES = STEPS // 16 // LONG or 1
STEPS_DRAWN = 900  # in an example, more or less: a step takes some 8 bytes, and hypothesis draws up to 8 KiB
EXAMPLES = STEPS // 2 // STEPS_DRAWN or examples(40)
LIFE, TROUBLE = 1500, 4


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("seed", range(4))
def test_nothing_acknowledged_is_lost_in_a_long_life(size: int, seed: int) -> None:
    for life in range(LIVES):
        cluster = Cluster(Random(seed + 4 * life), size)
        for _ in range(LONG):
            cluster.step()
        assert cluster.elections > 1, "the model elects nobody"
        assert len(cluster.acknowledged) > 10, "the model acknowledges nothing"


@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
@given(st.binary(min_size=STEPS_DRAWN * 8, max_size=STEPS_DRAWN * 8), st.sampled_from((2, 3, 3, 4)))
def test_nothing_acknowledged_is_lost_in_any_order_of_events(data: bytes, size: int) -> None:
    drawn = Drawn(data)
    cluster = Cluster(drawn, size, TROUBLE)
    while not drawn.is_over:
        cluster.step()


# ---- planted faults

Plant = Callable[[pytest.MonkeyPatch], None]


def forget_doubtful_proposals(patch: pytest.MonkeyPatch) -> None:
    """A proposal with an unknown outcome no longer counts."""
    patch.setattr(InSync, "on_doubt", InSync.on_refused)


def stop_counting_the_removed_early(patch: pytest.MonkeyPatch) -> None:
    """A replica to be removed stops counting before the coordinator has recorded it."""
    counted = InSync.counted.fget
    assert counted is not None

    def fewer(self: InSync) -> set[str]:
        proposed = self._proposed
        return {*proposed.state.insync} if proposed is not None else counted(self)

    patch.setattr(InSync, "counted", property(fewer))


def count_only_recorded_members(patch: pytest.MonkeyPatch) -> None:
    """A replica to be added counts only once that is known."""
    patch.setattr(InSync, "counted", property(lambda self: {*self.state.insync}))


def add_without_earlier_epochs(patch: pytest.MonkeyPatch) -> None:
    """A member is added although it lacks what an earlier leader may have confirmed."""
    patch.setattr(InSync, "_required_end", property(lambda self: self.confirmed))


def elect_members_not_in_sync(patch: pytest.MonkeyPatch) -> None:
    """A replica that is not in sync stands for election."""
    decide = Candidacy.decide

    def anyone(self: Candidacy, view: View, now: float, *, promised: int, end: int, following: str) -> Decision:
        if view.revision and not view.leased:
            insync = tuple(dict.fromkeys((*view.state.insync, self.me)))
            view = replace(view, state=election_model.GroupState(view.state.group, view.state.epoch, "", insync))
        return decide(self, view, now, promised=promised, end=end, following=following)

    patch.setattr(Candidacy, "decide", anyone)


def keep_absent_members_electable(patch: pytest.MonkeyPatch) -> None:
    """A new leader treats replicas as in sync that were not."""
    stand = Candidacy._stand

    def wider(self: Candidacy, view: View, promised: int, *, over: bool = False) -> Stand:
        decided = stand(self, view, promised, over=over)
        insync = tuple(dict.fromkeys((*decided.state.insync, *view.members)))
        state = election_model.GroupState(decided.state.group, decided.state.epoch, decided.state.leader, insync)
        return Stand(state, decided.revision, decided.over)

    patch.setattr(Candidacy, "_stand", wider)


def record_no_epoch_begin(patch: pytest.MonkeyPatch) -> None:
    """The begin of a new leader's epoch is not recorded."""
    patch.setattr(Epochs, "with_epoch", lambda self, number, begin: Epochs([(1, 0)]) if not self.entries else self)


def keep_bytes_the_leader_lacks(patch: pytest.MonkeyPatch) -> None:
    """A replica that joins is cut where the shorter log ends, whoever wrote the rest."""
    patch.setattr(election_model, "common_end", lambda ours, end, theirs, their_end: min(end, their_end))


def count_acks_of_older_epochs(patch: pytest.MonkeyPatch) -> None:
    """Acknowledgements to a leader of an earlier epoch count for the next one."""
    init = InSync.__init__
    acked_ends: dict[tuple[str, str], int] = {}
    on_acked = InSync.on_acked

    def remembers(self: InSync, member: str, end: int, now: float) -> None:
        acked_ends[self.me, member] = max(end, acked_ends.get((self.me, member), 0))
        on_acked(self, member, end, now)

    def begins(self: InSync, *arguments: object) -> None:
        init(self, *arguments)  # type: ignore[arg-type]
        for member, replica in self.replicas.items():
            replica.acked = acked_ends.get((self.me, member), 0)

    patch.setattr(InSync, "on_acked", remembers)
    patch.setattr(InSync, "__init__", begins)


# With the run to begin with: the model finds each of them from the first run too, some after 200,000 steps.
FAULTS: dict[Plant, int] = {
    forget_doubtful_proposals: 140,
    stop_counting_the_removed_early: 30,
    count_only_recorded_members: 130,
    add_without_earlier_epochs: 60,
    elect_members_not_in_sync: 0,
    keep_absent_members_electable: 0,
    record_no_epoch_begin: 0,
    keep_bytes_the_leader_lacks: 0,
    count_acks_of_older_epochs: 20,
}


@pytest.mark.parametrize("plant", FAULTS, ids=lambda plant: plant.__name__)
def test_the_model_finds_a_planted_fault(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        for life in range(FAULTS[plant], FAULTS[plant] + 300):
            live(life)


def live(seed: int) -> None:
    cluster = Cluster(Random(seed), 2 + seed % 3, TROUBLE)
    for _ in range(LIFE):
        cluster.step()
