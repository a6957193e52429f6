"""One replica's last view of the coordinator: whether it answers, and what was announced to it.

Java: none
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import trio

from rocketlet.failover.coordinator import Coordinator, CoordinatorAway, Presence, View

log = logging.getLogger("rocketlet.failover.outlook")

RETRY_SECONDS = 0.2  # after the coordinator has not answered


class Outlook:
    """`changes` wakes whoever waits for a newer view."""

    def __init__(
        self, coordinator: Coordinator, member: str, lease_seconds: float, on_view: Callable[[View], None]
    ) -> None:
        """`on_view` is called with each view before anybody is woken."""
        self.coordinator = coordinator
        self.view: View | None = None
        self.trouble = ""
        """Why the coordinator does not answer; empty while it does."""
        self.changes = trio.lowlevel.ParkingLot()
        self._member = member
        self._on_view = on_view
        self._answered_at = -lease_seconds
        self._announced: Presence | None = None

    async def run(self) -> None:
        """Keep the view up to date, until cancelled."""
        while True:
            try:
                view = await self.coordinator.read()
                self._update(view)
                await self.coordinator.change(view)
            except CoordinatorAway as error:
                self.note_away(error)
                await trio.sleep(RETRY_SECONDS)

    async def refresh(self) -> bool:
        """Read the view now. Returns whether the coordinator answered."""
        try:
            self._update(await self.coordinator.read())
        except CoordinatorAway as error:
            self.note_away(error)
            return False
        return True

    async def reread(self, seconds: float) -> None:
        """Forget the view, and try to read it again within that time."""
        self.view = None
        with trio.move_on_after(seconds):
            while self.view is None and not await self.refresh():
                await trio.sleep(RETRY_SECONDS)

    def _update(self, view: View) -> None:
        if self.trouble:
            log.warning("the coordinator answers again")
            self.trouble = ""
        if self._member not in view.members:
            self._announced = None  # our lease has expired, and others cannot find us
        self.note_answer()
        self.view = view
        self._on_view(view)
        self.wake()

    def wake(self) -> None:
        """Wake everybody who waits for news."""
        self.changes.unpark_all()

    def note_answer(self) -> None:
        """The coordinator has just answered."""
        self._answered_at = trio.current_time()

    def answered_within(self, seconds: float) -> bool:
        """Whether it has answered within that many seconds."""
        return trio.current_time() - self._answered_at < seconds

    def note_away(self, error: CoordinatorAway) -> None:
        """The coordinator has not answered."""
        if not self.trouble:
            log.warning("the coordinator does not answer, so nobody is elected and the in-sync set stays: %s", error)
        self.trouble = str(error)

    @property
    def announced_end(self) -> int | None:
        """The announced end of our log; None if the coordinator does not know us."""
        return self._announced.end if self._announced is not None else None

    async def announce(self, presence: Presence) -> None:
        """Announce ourselves, unless the coordinator knows it already."""
        if presence != self._announced:
            try:
                await self.coordinator.announce(presence)
                self._announced = presence
            except CoordinatorAway as error:
                self.note_away(error)
