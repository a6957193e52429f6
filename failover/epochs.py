"""Epochs of a log: which leader wrote it from which log offset onwards. Pure.

Each leader has its own epoch, which begins where its log ends at that moment. Two logs in which an epoch begins at the
same offset are identical up to where the first of them leaves that epoch: both received it from one leader, which had
one log up to there. So the offset at which two logs diverge is found without reading a record.

A replica that joins a leader adopts the leader's epochs, including those that begin past the end of its own log:
everything it will write comes from this leader.

Invariants: numbers and begins both grow, and the first begin is 0: records from before the first election count as
written in that epoch. An epoch in which nothing was written is replaced by the next one, so every begin occurs once.
Two logs of one group without a common epoch are therefore the same up to 0 and no further.

Java: store/ha/autoswitch/EpochFileCache.java of 5.x, which refuses an equal begin and so forgets such an election
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from rocketlet.common.errors import RocketletError

# The oldest except the first are forgotten: a replica that missed so many elections may be cut further than necessary.
MAX_EPOCHS = 1000


class BadEpochs(RocketletError):
    """The content is not a list of epochs."""


class Epoch(NamedTuple):
    number: int
    begin: int


class Epochs:
    """The epochs of one log. Immutable: every change returns a new value."""

    __slots__ = ("entries",)

    def __init__(self, entries: Iterable[Sequence[int]] = ()) -> None:
        """Raises BadEpochs."""
        epochs = tuple(Epoch(number, begin) for number, begin in entries)
        if len(epochs) > MAX_EPOCHS:
            raise BadEpochs(f"{len(epochs)} epochs; at most {MAX_EPOCHS} are kept")
        if any(epoch.number < 1 or epoch.begin < 0 for epoch in epochs):
            raise BadEpochs("an epoch below 1, or one that begins below log offset 0")
        if epochs and epochs[0].begin:
            raise BadEpochs(f"the first epoch begins at {epochs[0].begin}, not at 0")
        if any(a.number >= b.number or a.begin >= b.begin for a, b in pairwise(epochs)):
            raise BadEpochs("the epochs or their begins do not grow")
        self.entries = epochs

    @property
    def last(self) -> int:
        """The newest epoch; 0 if there is none."""
        return self.entries[-1].number if self.entries else 0

    def with_epoch(self, number: int, begin: int) -> Epochs:
        """With a new epoch. Epochs that begin there or later have no byte in the log, and are dropped."""
        assert number > self.last
        if not self.entries:
            return Epochs([Epoch(number, 0)])
        kept = [epoch for epoch in self.entries if epoch.begin < begin]
        if len(kept) == MAX_EPOCHS:
            del kept[1]
        return Epochs((*kept, Epoch(number, begin)))

    def cut(self, end: int) -> Epochs:
        """The epochs of the log after a cut at that offset."""
        return Epochs(epoch for epoch in self.entries if epoch.begin < end)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Epochs) and self.entries == other.entries

    def __hash__(self) -> int:
        return hash(self.entries)

    def __repr__(self) -> str:
        return f"<Epochs {' '.join(f'{epoch.number}@{epoch.begin}' for epoch in self.entries)}>"


def common_end(ours: Epochs, our_end: int, theirs: Epochs, their_end: int) -> int:
    """The offset up to which two logs are certainly identical; 0 if they have no epoch in common."""
    begins = {epoch.number: (n, epoch.begin) for n, epoch in enumerate(theirs.entries)}
    for n in range(len(ours.entries) - 1, -1, -1):
        m, begin = begins.get(ours.entries[n].number, (0, -1))
        if begin == ours.entries[n].begin:
            return min(_end_of(ours, n, our_end), _end_of(theirs, m, their_end))
    return 0


def _end_of(epochs: Epochs, n: int, log_end: int) -> int:
    """Where the log leaves its nth epoch."""
    following = epochs.entries[n + 1].begin if n + 1 < len(epochs.entries) else log_end
    return min(following, log_end)
