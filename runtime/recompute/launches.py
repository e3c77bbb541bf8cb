"""What launching takes in each part of a measured step: of blocks' operators, between them, and in backward passes.

Kernels come to the device one after the other, and so does what the host does to launch them. Which of both holds a
step up depends on how far ahead the host is; so stream events, which tell when a part had ended, tell it for one
step only. A device that knows more (sim) says of all that ran between two events of the step's log how long it takes
the device with the host far ahead, and the host with an idle device. Here these readings are put together again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

from runtime.profile.launches import Measured
from runtime.recompute.course import LAST, Event, Happened
from runtime.recompute.filling import Reading, filled_once
from runtime.recompute.in_turn import NOTHING, at_its_end, stalled, then

Part = tuple[int, str, int]
"""Of which call: a "node" by its index, the same where it ran "again", "before", "forward", "behind" by how many of the
program's operators have begun, "backward" by how many collectives came before, or "within" that by operators again."""
Parts = dict[Part, Measured]
PartsOfCalls = dict[int, Parts]
"""By call: its own parts."""
AHEAD: Part = (-1, "ahead", 0)
REST: Part = (-1, "rest", 0)
MOST_WAITS = 16
"""Behind the last block, and in a block's backward pass, so many of the host's waits are told apart."""
UNEXPLAINED = 1.02
"""Where a pass took longer than so many times what the device told, other streams had a part in it."""
BESIDE = 0.01
"""And where these worked for so much of the pass: how they and what moves hold each other up is not known."""


@dataclass(frozen=True)
class BlockLaunches:
    """Of one block, without what ran again: its `nodes`, what its forward pass has beside them, and what is behind it.

    What the host waits for between two nodes belongs to the first of them, `before` the first one to none. What is
    behind stands in the order of the program's operators: before the first, from where it begins to the second, …
    `again`: its nodes as they ran again, if they did;
    `backward`: its backward pass without the stalls at its collectives, in a part more than it has of these;
    `within`: the same of a step without collectives, in the order of its operators, as what is behind;
    `ahead_ns`: how far the host is ahead of the device where a step begins; `rest`: what follows the pass, until the
    host waits or, where it never does, the device's time of it and the host's of a whole step.
    """

    nodes: tuple[Measured, ...]
    again: tuple[Measured | None, ...]
    before: Measured
    forward: Measured
    behind: tuple[Measured, ...]
    backward: tuple[Measured, ...]
    within: tuple[Measured, ...]
    ahead_ns: int
    rest: Measured = NOTHING

    @property
    def held(self) -> list[int]:
        """After how many operators of its backward pass the host waits, or is sent something; the first of these."""
        return [count for count, one in enumerate(self.within) if one.tells_host][:MOST_WAITS]

    @classmethod
    def of(cls, parts: PartsOfCalls, call: int, node_waits_us: Sequence[float], waits_us: float, backward: int) -> Self:
        """A call of so many parts backwards; forwards it stalled for `waits_us`, of which its nodes have theirs."""
        own = parts.get(call, {})
        return cls(
            nodes=tuple(
                stalled(own.get((call, "node", index), NOTHING), wait) for index, wait in enumerate(node_waits_us)
            ),
            again=tuple(own.get((call, "again", index)) for index in range(len(node_waits_us))),
            before=own.get((call, "before", 0), NOTHING),
            forward=stalled(own.get((call, "forward", 0), NOTHING), waits_us - sum(node_waits_us)),
            behind=_counted(own, call, "behind"),
            backward=tuple(own.get((call, "backward", part), NOTHING) for part in range(backward)),
            within=_counted(own, call, "within"),
            ahead_ns=parts[AHEAD[0]][AHEAD].host_ns,
            rest=parts[AHEAD[0]].get(REST, NOTHING),
        )


def _counted(own: Parts, call: int, what: str) -> tuple[Measured, ...]:
    """Parts that are told by how many operators have begun."""
    most = max((one[2] for one in own if one[1] == what), default=-1)
    return tuple(own.get((call, what, count), NOTHING) for count in range(1 + most))


def read_launches(
    events: Sequence[Event], readings: Sequence[Reading], stalls_us: Sequence[float], took_us: float
) -> tuple[PartsOfCalls | None, bool]:
    """What a measured step's log and its `launches` tell; None where that is not all, as with kernels on more streams.
    And whether these had a part in the last complete pass.

    `stalls_us`: of the waits for collectives, in order; `took_us`: how long the last complete pass took. How far the
    host is ahead where the next step begins is a part, too (`AHEAD`), and what follows the pass (`REST`).
    """
    reader = _Reader(stalls_us).read(events, readings)
    if took_us * 1000 > UNEXPLAINED * reader.took_ns:
        return None, True
    found: PartsOfCalls = {AHEAD[0]: {AHEAD: NOTHING._replace(host_ns=reader.ahead_ns()), REST: reader.what_follows()}}
    for part, one in reader.found.items():
        found.setdefault(part[0], {})[part] = one
    return found, reader.beside_ns > BESIDE * reader.took_ns


@dataclass
class _Clocks:
    """The host's, and that of the stream on which the program computes."""

    host_ns: int = 0
    device_ns: int = 0

    @property
    def now_ns(self) -> int:
        """When an event would have happened that is recorded now."""
        return max(self.host_ns, self.device_ns)

    def run(self, one: Measured) -> None:
        """The host waits for the device where it did."""
        self.device_ns = max(self.device_ns + one.device_ns, self.host_ns + one.end_ns)
        self.host_ns += one.host_ns
        if one.host_waits:
            self.host_ns = self.device_ns - (one.end_ns - one.host_ns)

    def stall(self, stall_us: float) -> None:
        """The stream waits for a collective."""
        self.device_ns = self.now_ns + round(stall_us * 1000)


@dataclass
class _Reader:
    """Goes through a log; `now` is where the next reading belongs, `in_node` what a node has that may make nothing, and
    `in_again` what runs again since the last node that did, `made` the block's last node.

    `took_ns`: the last pass, as far as the device told (`clocks`); `step`: all without what ran again since it began,
    or since the host has `waited`, if it has; `rest`: what has followed it, `first` what it had until the host waited.
    `beside_ns`: what ran in it on others than `stream`, on which it began.
    """

    stalls_us: Sequence[float]
    found: Parts = field(default_factory=dict)
    now: Part | None = None
    in_node: Measured = NOTHING
    in_again: Measured = NOTHING
    again: bool = False
    made: Part | None = None
    clocks: _Clocks = field(default_factory=_Clocks)
    began_ns: int = 0
    took_ns: int = 0
    step: Measured = NOTHING
    waited: bool = False
    first: Measured = NOTHING
    rest: Measured = NOTHING
    begun: int = 0
    beside_ns: int = 0
    stream: int | None = None

    def read(self, events: Sequence[Event], readings: Sequence[Reading]) -> Self:
        """All of it."""
        once = filled_once(events, readings)
        for at, ((tape, what, index, _, _), told) in enumerate(zip(events, readings[:-1], strict=True)):
            self.hear(told, once=at in once)
            self.turn(tape, what, index)
        self.hear(readings[-1], once=len(events) in once)
        return self

    def hear(self, told: Reading, *, once: bool = False) -> None:
        """What has run before the event, and beside that."""
        *numbers, beside_ns, stream = told
        one = Measured(*numbers)
        if self.now is not None:
            self.stream = stream if self.stream is None else self.stream
            self.beside_ns += beside_ns if stream == self.stream else one.device_ns
        self.add(one, once=once)

    def ahead_ns(self) -> int:
        """How far the host is ahead where a step begins that comes after many like this one, without what ran again.

        If it never waits, and the device has more to do than the host, it is farther ahead from step to step.
        """
        if not self.waited and self.step.device_ns > self.step.host_ns:
            return self.step.host_ns
        return max(0, self.step.end_ns - self.step.host_ns)

    def what_follows(self) -> Measured:
        """What follows a pass until the host waits, be it in the next one: what comes then no plan changes.

        A host that never waits holds up the device as soon as a step takes more of it than of the device.
        """
        if not self.waited:
            return Measured(self.rest.device_ns, self.step.host_ns, self.step.host_ns, 0)
        return self.rest if self.rest.host_waits else then(self.rest, self.first)

    def add(self, one: Measured, *, once: bool) -> None:
        """What has run before the event; no later step does it where it was for `once`."""
        self.clocks.run(one)
        if once:
            return
        if self.again:
            self.in_again = then(self.in_again, one)
            return
        if not self.waited:
            self.first = then(self.first, one)
        if self.now is None:
            self.rest = then(self.rest, one)
        self.waited = self.waited or one.host_waits > 0
        self.step = NOTHING if one.host_waits else then(self.step, one)
        if self.now is not None and self.now[1] == "node":
            self.in_node = then(self.in_node, one)
        elif self.now is not None:
            self._put(self.now if self.now[1] != "forward" else self._between(self.now[0], one), one)
            if self.now[1] == "backward" and not self.stalls_us:  # other ranks would have to have as many
                self._put((self.now[0], "within", self.begun), one)

    def _between(self, tape: int, one: Measured) -> Part:
        """Where what lies between two nodes of a block's forward pass belongs."""
        if not one.tells_host:
            return tape, "forward", 0
        return self.made or (tape, "before", 0)

    def _put(self, part: Part, one: Measured) -> None:
        self.found[part] = then(self.found.get(part, NOTHING), one)

    def turn(self, tape: int, what: int, index: int) -> None:
        """The event itself."""
        if what in (Happened.TAKE, Happened.TAKEN):
            self.again, self.in_again = what == Happened.TAKE, NOTHING
        elif what == Happened.RAN:
            self.found[tape, "again", index], self.in_again = at_its_end(self.in_again), NOTHING
        elif what == Happened.MADE:
            self.made = tape, "node", index
            self._leave_node(self.made)
            self.now = tape, "forward", 0
        elif what in (Happened.NODE, Happened.END):
            self._leave_node(self._between(tape, self.in_node))
            self.now = (tape, "behind", 0) if what == Happened.END else (tape, "node", index)
        elif what == Happened.MARK:
            self.begun = 0
            self._mark(index)
        elif what == Happened.ELSE and index == 0 and self.now is not None and self.now[1] == "behind":
            self.now = self.now[0], "behind", self.now[2] + 1
        elif what == Happened.ELSE and index == 0 and not self.again:
            self.begun += 1
        elif what == Happened.WAIT:
            self._wait(self.stalls_us[index])

    def _mark(self, index: int) -> None:
        if index < LAST:  # a further backward pass: the pass is the first one
            return
        if index == LAST:
            self.now, self.took_ns = None, self.clocks.now_ns - self.began_ns
            return
        if self.now is None:
            self.began_ns, self.step, self.waited = self.clocks.now_ns, NOTHING, False
            self.first = self.rest = NOTHING
            self.beside_ns, self.stream = 0, None
        self.made = None
        self.now = index // 2, "backward" if index % 2 else "forward", 0

    def _wait(self, stall_us: float) -> None:
        self.clocks.stall(stall_us)
        self.step = stalled(self.step, stall_us)
        if self.now is None:
            self.rest = stalled(self.rest, stall_us)
        if self.now is not None and self.now[1] == "behind":
            self.found[self.now] = stalled(self.found.get(self.now, NOTHING), stall_us)
        elif self.now is not None and self.now[1] == "backward":
            self.now = self.now[0], "backward", self.now[2] + 1

    def _leave_node(self, part: Part) -> None:
        self._put(part, self.in_node)
        self.in_node = NOTHING
