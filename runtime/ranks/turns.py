"""Ranks of one process take turns: one computes until it must wait for another, then the next one goes on.

Taking turns makes a run the same each time, whatever the machine is doing meanwhile, and what belongs to a process (the
CPU's random numbers, environment variables) can be each rank's own. It also shows a deadlock the moment it happens:
nobody can go on.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from runtime.ranks.belongings import Belongings
from solvers.ir.errors import BayplanError


class Deadlock(BayplanError):
    """No rank can go on: each waits for another one, or for one that has ended."""


class Abandoned(BaseException):
    """Ends the thread of a rank whose run was given up from outside; no error of the program's."""


@dataclass(frozen=True)
class Wait:
    """What a rank waits for: `on` are the ranks that must act first, `ready` says whether they have."""

    what: str
    on: Callable[[], tuple[int, ...]]
    ready: Callable[[], bool]


@dataclass
class _Seat:
    """Where a rank stands. `wake` lets its thread go on; `error` is raised in it when it does."""

    belongings: Belongings
    wake: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    wait: Wait | None = None
    error: BaseException | None = None
    ended: bool = False
    failure: str | None = None  # In words: the error itself would keep its frames, and their tensors, alive.


class Turns:
    """Who of `ranks` may compute. `clock(rank)` is a rank's virtual time: the earliest that can go on does.

    Only the rank whose turn it is changes anything here, so that no lock is needed; `abandon` may be called by another
    thread.
    """

    def __init__(self, ranks: int, clock: Callable[[int], int]) -> None:
        self.ranks = ranks
        self._seats = [_Seat(Belongings(rank, ranks)) for rank in range(ranks)]
        self._clock = clock
        self._mine = threading.local()
        self._abandoned = False
        self.passed = 0
        """Turns taken so far."""
        self.holder: int | None = None
        """The rank whose turn it is."""

    @property
    def rank(self) -> int | None:
        """The rank of the calling thread; None in a thread that is no rank's."""
        rank: int | None = getattr(self._mine, "rank", None)
        return rank

    def begin(self) -> None:
        """Gives the first turn away; every rank's thread must have been started, or be about to."""
        self._pass_on()

    def enter(self, rank: int) -> None:
        """The calling thread is this rank's from now on; returns when its first turn comes."""
        self._mine.rank = rank
        self._sit_out(self._seats[rank])

    def leave(self, failure: BaseException | None = None) -> None:
        """The calling rank has ended, by this error if any; the next one goes on."""
        seat = self._own_seat()
        seat.ended = True
        seat.failure = f"{type(failure).__name__}: {failure}" if failure is not None else None
        seat.belongings.put_away()
        self._pass_on()

    def wait(self, wait: Wait) -> None:
        """Returns at once if it is ready, else when the calling rank's turn comes again with it ready.

        Raises `Deadlock` where it never can be.
        """
        if wait.ready():
            return
        seat = self._own_seat()
        seat.wait = wait
        seat.belongings.put_away()
        self._pass_on()
        self._sit_out(seat)

    def give_way(self) -> None:
        """Whoever's virtual clock is earliest goes on, the calling rank itself perhaps; returns at its next turn."""
        seat = self._own_seat()
        seat.belongings.put_away()
        self._pass_on()
        self._sit_out(seat)

    def abandon(self) -> None:
        """Ends all waiting: every rank raises `Abandoned` at its next turn."""
        self._abandoned = True
        for seat in self._seats:
            seat.wake.release()

    def _own_seat(self) -> _Seat:
        rank = self.rank
        assert rank is not None, "only a rank's thread may wait for its turn"
        return self._seats[rank]

    def _sit_out(self, seat: _Seat) -> None:
        seat.wake.acquire()
        if self._abandoned:
            raise Abandoned
        seat.wait = None
        seat.belongings.take_out()
        error, seat.error = seat.error, None
        if error is not None:
            raise error

    def _pass_on(self) -> None:
        live = [rank for rank, seat in enumerate(self._seats) if not seat.ended]
        free = [rank for rank in live if self._may_go_on(self._seats[rank])]
        if live and not free:
            error = Deadlock(self._who_waits_for_whom(live))
            for rank in live:
                self._seats[rank].error = error
            free = live
        if not free:
            self.holder = None
            return
        self.holder = min(free, key=lambda rank: (self._clock(rank), rank))
        self.passed += 1
        self._seats[self.holder].wake.release()

    @staticmethod
    def _may_go_on(seat: _Seat) -> bool:
        return seat.error is not None or seat.wait is None or seat.wait.ready()

    def _who_waits_for_whom(self, live: list[int]) -> str:
        lines = []
        for rank in live:
            wait = self._seats[rank].wait
            if wait is not None:
                on = ", ".join(self._told(other) for other in wait.on())
                lines.append(f"rank {rank} waits in {wait.what} for {on or 'nobody'}")
        return "no rank can go on: " + "; ".join(lines) + ". Let all of them call the same operations in the same order"

    def _told(self, rank: int) -> str:
        seat = self._seats[rank]
        if not seat.ended:
            return f"rank {rank}"
        if seat.failure is None:
            return f"rank {rank}, which has ended"
        return f"rank {rank}, which ended with {seat.failure}"
