"""Ranks as threads of one process, each on a simulated device of its own."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar, get_args

import torch

from runtime.device import Race, SimDevice, TraceRecord, use_sim
from runtime.ranks.backend import Transport, current, register
from runtime.ranks.belongings import Belongings
from runtime.ranks.group import RankDevice
from runtime.ranks.lanes import host_jump, raise_races, waiter
from runtime.ranks.meeting import Key, Meeting, Meetings, Part
from runtime.ranks.report import rank_reports
from runtime.ranks.turns import Abandoned, Turns
from runtime.ranks.world import Store, Worlds, leave_groups, no_fake_results_of_other_ranks, own_draws, worlds
from solvers.ir.errors import BayplanError, InvalidInput
from solvers.ir.hardware import Hardware
from solvers.ir.report import Report
from solvers.timeline.collectives import Algorithm, accelerators

T = TypeVar("T")
LOOK_S = 0.05
UNTOLD_STAGES = (
    "Tensors have shapes only here, so that stages cannot tell each other what they send: give every PipelineStage "
    "input_args and output_args, on device meta."
)


class Stuck(BayplanError):
    """A rank neither computes nor waits for another one by torch.distributed."""


@dataclass(frozen=True)
class RankRun(Generic[T]):
    """What a run of ranks gave: by rank, the program's values and a report; races and the trace of all devices.

    `turns` counts how often one rank gave way to another.
    """

    values: list[T]
    reports: list[Report]
    races: list[Race]
    trace: list[TraceRecord]
    sim: SimDevice
    turns: int

    @property
    def makespan_ns(self) -> int:
        """When the last device had done its work, in virtual time since the run began."""
        return max((record.end_ns for record in self.trace), default=0)


class ThreadTransport(Transport):
    """Brings the shares of threads together."""

    def __init__(self, turns: Turns, meetings: Meetings, sim: SimDevice) -> None:
        self.turns, self._meetings, self._sim = turns, meetings, sim
        self._devices: dict[int, RankDevice] = {}

    def mine(self) -> RankDevice:
        """What the calling rank has."""
        rank = self.turns.rank
        assert rank is not None
        return self._devices.setdefault(rank, RankDevice(rank, torch.device("sim", rank)))

    @property
    def ranks(self) -> int:
        """How many ranks there are."""
        return self.turns.ranks

    def arrive(self, key: Key, what: str, ranks: tuple[int, ...], part: Part) -> Meeting:
        """The calling rank comes to an operation."""
        return self._meetings.arrive(key, what, ranks, part)

    def wait(self, meeting: Meeting) -> None:
        """Lets others go on until the operation has happened."""
        self._meetings.wait(self.turns, meeting)

    def poll(self, meeting: Meeting) -> None:
        """Lets others go on whose clocks are behind."""
        self.turns.give_way()

    def wait_for_all(self, device: int) -> None:
        """Lets others go on until all operations on a device have happened: its host is about to wait for them."""
        if self.turns.rank is not None:
            self._meetings.wait_for_all_of(self.turns, device)

    def let_go(self) -> None:
        """The calling rank's program is over: tensors of works that it never awaited are nobody's any more."""
        self.mine().let_go()

    def host_waits(self, mine: RankDevice, time_ns: int) -> None:
        """The rank's host goes on at that time."""
        host_jump(mine.rank, time_ns)

    def host_ns(self, mine: RankDevice) -> int:
        """The rank's host clock."""
        return self._sim.at(mine.rank).host_ns()


def run_ranks(
    program: Callable[[int], T],
    ranks: int,
    *,
    hardware: Hardware | Path | str | None = None,
    algorithm: Algorithm = "ring",
    timeout_s: float = 60.0,
    **options: Any,
) -> RankRun[T]:
    """Runs `program(rank)` on `ranks` threads, rank r on device `sim:r`; torch.distributed joins them (README.md).

    The program is an ordinary one: it calls `torch.distributed.init_process_group("sim")` and uses `sim:{rank}`, which
    is its current device. Ranks take turns, so that a run is the same each time. `hardware` is a cluster file whose
    devices the ranks stand for in their order; `options` are those of `use_sim`.

    Raises what a rank's program raised, first the one that failed first; `Deadlock` naming who waits for whom;
    `Stuck` for a rank that neither computes nor waits by torch.distributed for `timeout_s` seconds; `InvalidInput`.
    """
    if type(ranks) is not int or ranks < 1:
        raise InvalidInput(f"ranks is {ranks!r}: give a whole number, at least 1")
    if not timeout_s > 0:
        raise InvalidInput(f"timeout_s is {timeout_s!r}: give seconds above 0")
    if algorithm not in get_args(Algorithm):
        raise InvalidInput(f"algorithm is {algorithm!r}: choose of {', '.join(map(repr, get_args(Algorithm)))}")
    if current() is not None:
        raise InvalidInput("run_ranks was called by a rank: call it once, outside")
    sim = use_sim(hardware, devices=ranks, **options)
    sim.set_tracing(True)
    turns = Turns(ranks, lambda rank: sim.at(rank).host_ns())
    meetings = Meetings(sim, _names(sim.hardware, ranks), algorithm)
    transport = ThreadTransport(turns, meetings, sim)
    values: dict[str, bytes] = {}
    outside = Belongings.of_process()
    try:
        with (
            waiter(transport.wait_for_all),
            register(lambda: transport if turns.rank is not None else None),
            worlds(lambda: Store(turns, values)) as found,
            own_draws(),
        ):
            results = _Threads(program, turns, found, sim, transport, timeout_s).run()
    except BaseException:
        meetings.forget()
        sim.reset()  # Else operations whose members never came would be awaited by whoever uses the devices next.
        raise
    finally:
        outside.take_out()
    return RankRun(results, rank_reports(sim, ranks), sim.races(), sim.trace(), sim, turns.passed)


def _names(hardware: Hardware, ranks: int) -> list[str]:
    names = accelerators(hardware)
    if len(names) < ranks:
        raise InvalidInput(
            f"hardware {hardware.name!r} has {len(names)} device{'s' * (len(names) != 1)}, but there are {ranks} "
            "ranks: choose a cluster, or fewer ranks"
        )
    return names[:ranks]


class _Threads(Generic[T]):
    """The threads of one run."""

    def __init__(
        self,
        program: Callable[[int], T],
        turns: Turns,
        found: Worlds,
        sim: SimDevice,
        transport: ThreadTransport,
        timeout_s: float,
    ) -> None:
        self._program, self._turns, self._worlds, self._sim = program, turns, found, sim
        self._transport, self._timeout_s = transport, timeout_s
        self._values: dict[int, T] = {}
        self._failure: tuple[int, BaseException] | None = None

    def run(self) -> list[T]:
        """Runs all to their ends, and returns their values by rank."""
        threads = [
            threading.Thread(target=self._main, args=(rank,), name=f"rank {rank}", daemon=True)
            for rank in range(self._turns.ranks)
        ]
        for thread in threads:
            thread.start()
        self._turns.begin()
        try:
            self._watch(threads)
        except BaseException:
            self._turns.abandon()
            raise
        if self._failure is not None:
            (rank, error), self._failure = self._failure, None
            error.add_note(f"This was rank {rank} of {self._turns.ranks}.")
            if self._sim.shapes_only and type(error).__name__ == "PipeliningMetadataError":
                error.add_note(UNTOLD_STAGES)
            raise error
        return [self._values[rank] for rank in range(self._turns.ranks)]

    def _main(self, rank: int) -> None:
        try:
            self._turns.enter(rank)
            self._worlds.enter()
            torch.accelerator.set_device_index(rank)
            # Backward runs in the rank's own thread: another one would be no rank's.
            with torch.autograd.set_multithreading_enabled(False), no_fake_results_of_other_ranks():
                self._values[rank] = self._program(rank)
            # What nobody awaited must happen all the same: its other members may have forgotten it.
            self._transport.wait_for_all(rank)
            raise_races(rank)
        except Abandoned:
            return
        except BaseException as error:
            leave_groups()
            self._transport.let_go()
            if self._failure is None:
                self._failure = rank, error
            self._turns.leave(error)
        else:
            leave_groups()
            self._transport.let_go()
            self._turns.leave()

    def _kernels(self) -> int:
        return sum(self._sim.at(rank).counters().kernels for rank in range(self._turns.ranks))

    def _watch(self, threads: list[threading.Thread]) -> None:
        seen, quiet_s = (0, 0), 0.0
        for thread in threads:
            while thread.is_alive():
                thread.join(LOOK_S)
                now = (self._turns.passed, self._kernels())
                quiet_s = 0.0 if now != seen else quiet_s + LOOK_S
                seen = now
                if quiet_s > self._timeout_s:
                    raise Stuck(
                        f"rank {self._turns.holder} has neither computed nor waited for another rank by "
                        f"torch.distributed for {self._timeout_s:g} s, and the others wait for it: let ranks of one "
                        "process wait for each other by torch.distributed only, or raise timeout_s"
                    )
