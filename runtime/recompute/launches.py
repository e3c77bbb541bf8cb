"""What launching takes in each part of a measured step: of blocks' operators, between them, and in backward passes.

Kernels come to the device one after the other, and so does what the host does to launch them. Which of both holds a
step up depends on how far ahead the host is; so stream events, which tell when a part had ended, tell it for one
step only. A device that knows more (sim) says of all that ran between two events of the step's log how long it takes
the device with the host far ahead, and the host with an idle device. Here these readings are put together again.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Self

from runtime.profile.launches import Measured
from runtime.recompute.course import LAST, Event, Happened

Part = tuple[int, str, int]
"""Of which call: a "node" by its index, the same where it ran "again", "forward", "behind", or "backward" by how many
waits came before."""
Parts = dict[Part, Measured]
Reading = tuple[int, int, int, bool]
"""Of a log's `launches`: a `Measured`."""
AHEAD: Part = (-1, "ahead", 0)
NOTHING = Measured(0, 0, 0, False)
UNEXPLAINED = 1.02
"""Where a pass took longer than so many times what the device told, other streams had a part in it."""


@dataclass(frozen=True)
class BlockLaunches:
    """Of one block, without what ran again: its `nodes`, what its forward pass has beside them, and what is behind it.

    `again`: its nodes as they ran again, if they did;
    `backward`: its backward pass without the stalls at its collectives, in a part more than it has of these;
    `ahead_ns`: how far the host is ahead of the device where a step begins.
    """

    nodes: tuple[Measured, ...]
    again: tuple[Measured | None, ...]
    forward: Measured
    behind: Measured
    backward: tuple[Measured, ...]
    ahead_ns: int

    @classmethod
    def of(cls, parts: Parts, call: int, node_waits_us: Sequence[float], waits_us: float, backward: int) -> Self:
        """A call of so many parts backwards; forwards it stalled for `waits_us`, of which its nodes have theirs."""
        return cls(
            nodes=tuple(
                stalled(parts.get((call, "node", index), NOTHING), wait) for index, wait in enumerate(node_waits_us)
            ),
            again=tuple(parts.get((call, "again", index)) for index in range(len(node_waits_us))),
            forward=stalled(parts.get((call, "forward", 0), NOTHING), waits_us - sum(node_waits_us)),
            behind=parts.get((call, "behind", 0), NOTHING),
            backward=tuple(parts.get((call, "backward", part), NOTHING) for part in range(backward)),
            ahead_ns=parts[AHEAD].host_ns,
        )


def joined(parts: Iterable[Measured]) -> Measured:
    """One after the other."""
    return reduce(_then, parts, NOTHING)


def _then(first: Measured, last: Measured) -> Measured:
    return Measured(
        first.device_ns + last.device_ns,
        first.host_ns + last.host_ns,
        max(first.end_ns + last.device_ns, first.host_ns + last.end_ns),
        first.host_waits or last.host_waits,
    )


def stalled(one: Measured, stall_us: float) -> Measured:
    """The same, and then the device waits so long."""
    if stall_us <= 0:
        return one
    stall_ns = round(stall_us * 1000)
    return one._replace(device_ns=one.device_ns + stall_ns, end_ns=max(one.end_ns, one.host_ns) + stall_ns)


def read_launches(
    events: Sequence[Event], readings: Sequence[Reading], stalls_us: Sequence[float], took_us: float
) -> Parts | None:
    """What a measured step's log and its `launches` tell; None where that is not all, as with kernels on more streams.

    `stalls_us`: of the waits for collectives, in order; `took_us`: how long the last complete pass took. How far the
    host is ahead where the next step begins is a part, too (`AHEAD`).
    """
    first = _Reader(stalls_us).read(events, readings)
    if took_us * 1000 > UNEXPLAINED * first.took_ns:
        return None
    ahead_ns = first.ahead_ns()
    found = _Reader(stalls_us, ahead_ns).read(events, readings).found
    return {**found, AHEAD: NOTHING._replace(host_ns=ahead_ns)}


@dataclass
class _Clocks:
    """The host's, and that of the stream on which the program computes."""

    host_ns: int = 0
    device_ns: int = 0

    @property
    def now_ns(self) -> int:
        """When an event would have happened that is recorded now."""
        return max(self.host_ns, self.device_ns)

    def run(self, one: Measured) -> int:
        """How much of the host's time it takes, with its waits for the device."""
        began, self.device_ns = self.host_ns, max(self.device_ns + one.device_ns, self.host_ns + one.end_ns)
        self.host_ns += one.host_ns
        if one.host_waits:
            self.host_ns = self.now_ns
        return self.host_ns - began

    def stall(self, stall_us: float) -> None:
        """The stream waits for a collective."""
        self.device_ns = self.now_ns + round(stall_us * 1000)


@dataclass
class _Reader:
    """Goes through a log; `now` is where the next reading belongs, `in_node` what a node has that may make nothing, and
    `in_again` what runs again since the last node that did.

    Where the host waits for the device, launching lasts as long as it did in this step without what ran again (`plain`;
    `real` with it), which depends on how far the host was ahead: by `begins_ahead_ns` where the pass begins. `took_ns`:
    the last pass, as far as the device told; `step`: all since it began, or since the host has waited, if it has.
    """

    stalls_us: Sequence[float]
    begins_ahead_ns: int = 0
    found: Parts = field(default_factory=dict)
    now: Part | None = None
    in_node: Measured = NOTHING
    in_again: Measured = NOTHING
    again: bool = False
    plain: _Clocks = field(default_factory=_Clocks)
    real: _Clocks = field(default_factory=_Clocks)
    began_ns: int = 0
    took_ns: int = 0
    step: Measured = NOTHING

    def read(self, events: Sequence[Event], readings: Sequence[Reading]) -> Self:
        """All of it."""
        for (tape, what, index, _, _), told in zip(events, readings[:-1], strict=True):
            self.add(Measured(*told))
            self.turn(tape, what, index)
        self.add(Measured(*readings[-1]))
        return self

    def ahead_ns(self) -> int:
        """How far the host is ahead where a step begins that comes after many like this one, without what ran again.

        If it never waits, and the device has more to do than the host, it is farther ahead from step to step.
        """
        device, host, end, waits = self.step
        if not waits and device > host:
            return host
        return max(0, end - host)

    def add(self, one: Measured) -> None:
        """What has run before the event."""
        self.real.run(one)
        if self.again:
            self.in_again = _then(self.in_again, one)
            return
        self.step = NOTHING._replace(host_waits=True) if one.host_waits else _then(self.step, one)
        one = one._replace(host_ns=self.plain.run(one), host_waits=False)
        if self.now is not None and self.now[1] == "node":
            self.in_node = _then(self.in_node, one)
        elif self.now is not None:
            self._put(self.now, one)

    def _put(self, part: Part, one: Measured) -> None:
        self.found[part] = _then(self.found.get(part, NOTHING), one)

    def turn(self, tape: int, what: int, index: int) -> None:
        """The event itself."""
        if what in (Happened.TAKE, Happened.TAKEN):
            self.again, self.in_again = what == Happened.TAKE, NOTHING
        elif what == Happened.RAN:
            self.found[tape, "again", index], self.in_again = self.in_again, NOTHING
        elif what == Happened.MADE:
            self._leave_node((tape, "node", index))
            self.now = tape, "forward", 0
        elif what in (Happened.NODE, Happened.END):
            self._leave_node((tape, "forward", 0))
            self.now = (tape, "behind", 0) if what == Happened.END else (tape, "node", index)
        elif what == Happened.MARK:
            self._mark(index)
        elif what == Happened.WAIT:
            self._wait(self.stalls_us[index])

    def _mark(self, index: int) -> None:
        if index < LAST:  # a further backward pass: the pass is the first one
            return
        if index == LAST:
            self.now, self.took_ns = None, self.real.now_ns - self.began_ns
            return
        if self.now is None:
            self.began_ns, self.step = self.real.now_ns, NOTHING
            self.plain = _Clocks(-self.begins_ahead_ns, 0)
        self.now = index // 2, "backward" if index % 2 else "forward", 0

    def _wait(self, stall_us: float) -> None:
        self.plain.stall(stall_us)
        self.real.stall(stall_us)
        self.step = stalled(self.step, stall_us)
        if self.now is not None and self.now[1] == "behind":
            self.found[self.now] = stalled(self.found.get(self.now, NOTHING), stall_us)
        elif self.now is not None and self.now[1] == "backward":
            self.now = self.now[0], "backward", self.now[2] + 1

    def _leave_node(self, part: Part) -> None:
        self._put(part, self.in_node)
        self.in_node = NOTHING
