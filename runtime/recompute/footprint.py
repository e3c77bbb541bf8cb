"""What a step takes under any policies, from the memory of one measured step: a walk through its events.

Whatever the policies, a step's operators, what autograd asks for and when it lets go are the same. Between two events
the memory that a policy has is that of the measured step, less what the measured step's tapes held then, and what the
policy's hold (`course.py`). What runs again when autograd asks, or in a window, is added where it would run.

One file: a walk, what it reads of the measured step, and the peaks that it finds.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import numpy.typing as npt

from runtime.recompute.course import LAST, Course, Event, Happened, Ran, TapeShape
from runtime.recompute.policy import BlockPolicy

Own = tuple[int, Happened, int]
"""An event of one call: where in the log, what, and its index."""
IntArray = npt.NDArray[np.int64]
After = Callable[[IntArray], IntArray]
"""Bytes after these events of the log, by place; 0 before the first, at -1."""


def mark_of(call: int, backward: bool) -> int:
    """The mark at which a call's forward or backward pass begins."""
    return 2 * call + backward


def again_mark_of(call: int) -> int:
    """The mark at which a further backward pass of a graph that stayed comes to a call."""
    return LAST - 1 - call


@dataclass(frozen=True)
class CallFacts:
    """A call of a block in the measured step: which block, the call before it in the same pass, what its tape is."""

    block: int
    before: int | None
    shape: TapeShape
    policy: BlockPolicy


@dataclass
class Peaks:
    """The most bytes in use in each interval of a step; the largest of several passes.

    `forward` until the last block has returned, `loss` from there on, `backward` by block, from the gradient of what it
    returned to that of the block before (of the first block: to the end of the backward pass).
    """

    forward: int = 0
    loss: int = 0
    backward: dict[int, int] = field(default_factory=dict)

    def note(self, interval: "int | str", peak_bytes: int) -> None:
        """The peak of an interval: a block's number, "loss" or "forward"."""
        if isinstance(interval, int):
            self.backward[interval] = max(self.backward.get(interval, 0), peak_bytes)
        elif interval == "loss":
            self.loss = max(self.loss, peak_bytes)
        else:
            self.forward = max(self.forward, peak_bytes)

    def at_least(self, other: "Peaks") -> "Peaks":
        """The larger of both in each interval."""
        blocks = {*self.backward, *other.backward}
        backward = {one: max(self.backward.get(one, 0), other.backward.get(one, 0)) for one in blocks}
        return Peaks(max(self.forward, other.forward), max(self.loss, other.loss), backward)


@dataclass(frozen=True)
class Walked:
    """A step under policies: the most bytes in use until its backward pass ends, and what ran again in each call."""

    peak_bytes: int
    ran: tuple[Ran, ...]


@dataclass(frozen=True)
class _Trace:
    """A call's way through its own events: what it holds after each, and the most during each beyond what is before."""

    held: IntArray
    most: IntArray
    ran: Ran


class Footprint:
    """The memory of one measured step, and of the same step under other policies.

    `waits` numbers the waits that may serve a call: for each call, by phase and place, which of the step's waits it is.
    """

    def __init__(self, events: Sequence[Event], calls: Sequence[CallFacts]) -> None:
        events = _until_backward_ends([one for one in events if not _is_use(one)])
        self.calls = tuple(calls)
        self._intervals = _intervals(events, calls)
        self.peaks = Peaks()
        for interval, event in zip(self._intervals, events, strict=True):
            self.peaks.note(interval, event[3])
        self._before = np.array([event[3] for event in events], dtype=np.int64)
        self._now = np.array([event[4] for event in events], dtype=np.int64)
        self._inside = _inside(events)
        died = np.array([event[1] == Happened.DIED for event in events], dtype=np.bool_)
        self._following = _following(died)
        self._grew = (self._before > np.concatenate([self._before[:1], self._now[:-1]])) & ~died
        self.waits: list[dict[tuple[Happened, int], int]] = [{} for _ in calls]
        self._own = _own_events(events, calls, self.waits)
        self._where = [np.array([at for at, _, _ in own], dtype=np.int64) for own in self._own]
        self._kinds = _kinds(self._own, self.calls)
        self._taken = self._most_taken(events)
        self._alone = [self._held_by_tape_alone(events, index) for index in range(len(calls))]
        self._base = self._held([call.policy for call in self.calls])[0]

    @property
    def alone(self) -> Sequence[Sequence[int]]:
        """By call the values whose first storage only its tape held on to."""
        return self._alone

    @property
    def most_bytes(self) -> int:
        """Of the measured step itself, until its backward pass ends."""
        return int(self._before.max(initial=0))

    def walk(self, policies: Sequence[BlockPolicy]) -> Walked:
        """The step under these policies, one for each block."""
        levels, traces = self._levels(policies)
        return Walked(int(levels.max(initial=0)), tuple(trace.ran for trace in traces))

    def peaks_alone(self, policies: Sequence[BlockPolicy], alone: Sequence[BlockPolicy]) -> dict[int, int]:
        """By block, what its backward pass takes where it has its policy of `alone`, and all others have `policies`.

        Each call is walked through twice, however many blocks there are.
        """
        beyond, traces = self._beyond(self._policies(policies))
        others, most = self._held(self._policies(alone))[1], self._most_again(traces)
        calls: dict[int, list[int]] = {}
        for index, call in enumerate(self.calls):
            calls.setdefault(call.block, []).append(index)
        ends: dict[int, list[int]] = {}
        for end, interval in enumerate(self._intervals):
            if isinstance(interval, int):
                ends.setdefault(interval, []).append(end)
        found = {}
        for block, at in ends.items():
            own, instead = calls.get(block, []), most.copy()
            more = [(self._where[one], others[one].held - traces[one].held) for one in own]
            for one in own:
                instead[self._where[one]] = others[one].most
            levels = self._levels_at(np.array(at), partial(_with_more, beyond, more), instead)
            found[block] = max(0, int(levels.max()))
        return found

    def _policies(self, policies: Sequence[BlockPolicy]) -> list[BlockPolicy]:
        """By call."""
        return [call.policy if call.block < 0 else policies[call.block] for call in self.calls]

    def _levels(self, policies: Sequence[BlockPolicy]) -> tuple[IntArray, list[_Trace]]:
        """The most in use between each event and the one before, and what each call did."""
        beyond, traces = self._beyond(self._policies(policies))
        return self._levels_at(np.arange(len(self._now)), beyond, self._most_again(traces)), traces

    def _beyond(self, policies: Sequence[BlockPolicy]) -> tuple[After, list[_Trace]]:
        """What all tapes hold beyond what the measured step's do, and what each call did; policies by call."""
        held, traces = self._held(policies)
        return np.append(held - self._base, 0).__getitem__, traces

    def _most_again(self, traces: Sequence[_Trace]) -> IntArray:
        """The most during each event that makes a call run something again, beyond what is before."""
        most = np.zeros(len(self._now), dtype=np.int64)
        for where, trace in zip(self._where, traces, strict=True):
            most[where] = trace.most
        return most

    def _levels_at(self, at: IntArray, beyond: After, most: IntArray) -> IntArray:
        """The most in use between these events and the ones before them.

        `beyond`: what tapes hold after events beyond what the measured step's do; `most` by event, as `_most_again`.
        A storage that died in the interval before an event, perhaps before its peak, was there where tapes hold it;
        where the interval began at its peak all were there.
        """
        left = beyond(at - 1)
        dead = np.where(self._grew[at], np.maximum(0, beyond(self._following[at]) - beyond(at)), 0)
        levels = np.where(self._inside[at], 0, self._before[at] + left + dead)
        again = np.where(most[at] > 0, self._now[at] + left + most[at], levels)
        found: IntArray = np.maximum(levels, again)
        return found

    def _held(self, policies: Sequence[BlockPolicy]) -> tuple[IntArray, list[_Trace]]:
        """What all tapes hold after each event; calls that are alike and do alike are walked through once."""
        changes = np.zeros(len(self._now), dtype=np.int64)
        traces = []
        known: dict[tuple[object, ...], _Trace] = {}
        for index, policy in enumerate(policies):
            key = self._kinds[index], self._alone[index], id(policy)
            trace = known.get(key)
            if trace is None:
                trace = known[key] = self._trace(index, policy)
            np.add.at(changes, self._where[index], np.diff(trace.held, prepend=0))
            traces.append(trace)
        return changes.cumsum(), traces

    def _trace(self, index: int, policy: BlockPolicy) -> _Trace:
        course = self._course(index, policy, self._alone[index])
        held, most = [], []
        for _, what, number in self._own[index]:
            before = course.held
            meanwhile = course.passes(what, number)
            most.append(meanwhile - before if what in _REPLAYS else 0)
            held.append(course.held)
        return _Trace(np.array(held, dtype=np.int64), np.array(most, dtype=np.int64), course.ran)

    def _course(self, index: int, policy: BlockPolicy, alone: Sequence[int]) -> Course:
        windows = {Happened.IN_FORWARD: policy.in_forward, Happened.IN_BACKWARD: policy.in_backward}
        return Course(self.calls[index].shape, policy.store, windows, self._taken[self._kinds[index]], alone)

    def _most_taken(self, events: Sequence[Event]) -> dict[int, dict[int, int]]:
        """By kind of call and node: the most that running it again took, or running it where it never ran again."""
        first: dict[int, dict[int, int]] = {kind: {} for kind in self._kinds}
        again: dict[int, dict[int, int]] = {kind: {} for kind in self._kinds}
        began: dict[int, int] = {}
        for tape, what, index, before, now in events:
            if tape < 0:
                continue
            if what in (Happened.NODE, Happened.RUN):
                began[tape] = now
            elif what in (Happened.MADE, Happened.RAN):
                into = (first if what == Happened.MADE else again)[self._kinds[tape]]
                into[index] = max(into.get(index, 0), before - began[tape])
        return {kind: first[kind] | again[kind] for kind in first}

    def _held_by_tape_alone(self, events: Sequence[Event], index: int) -> tuple[int, ...]:
        """Values whose first storage died the moment the measured tape let go of it: the program did not have it."""
        course = self._course(index, self.calls[index].policy, ())
        let_go: dict[int, int] = {}
        found = []
        for at, what, value in self._own[index]:
            if what is Happened.DIED and let_go.get(value) == self._cause(events, at):
                found.append(value)
            course.passes(what, value)
            for one in course.let_go:
                let_go[one] = at
        return tuple(found)

    def _cause(self, events: Sequence[Event], at: int) -> int:
        """The event after which a storage was found dead; while something ran again, the one that asked for it."""
        while events[at][1] == Happened.DIED:
            at -= 1
        while self._inside[at]:
            at -= 1
        return at


def _with_more(beyond: After, more: Sequence[tuple[IntArray, IntArray]], at: IntArray) -> IntArray:
    """And so much more, each after the events at which it changes."""
    found = beyond(at)
    for where, held in more:
        found = found + np.append(held, 0)[np.searchsorted(where, at, side="right") - 1]
    return found


def _is_use(event: Event) -> bool:
    """It tells of what the program does outside of blocks (`outside.py`), and changes no memory."""
    return event[1] == Happened.READ or (event[1] == Happened.DIED and event[2] < 0)


def _until_backward_ends(events: Sequence[Event]) -> Sequence[Event]:
    """The step without what follows its last backward pass: an optimizer that makes its states there does so once."""
    ends = [at for at, (_, what, index, _, _) in enumerate(events) if what == Happened.MARK and index == LAST]
    return events[: ends[-1] + 1] if ends else events


def _intervals(events: Sequence[Event], calls: Sequence[CallFacts]) -> list[int | str]:
    """In which interval of the step each event ends."""
    found, interval = [], "forward"  # type: tuple[list[int | str], int | str]
    last = max((call.block for call in calls), default=-1)
    for tape, what, index, _, _ in events:
        found.append(interval)
        if what == Happened.END and calls[tape].block == last:
            interval = "loss"
        elif what == Happened.MARK and index == LAST:
            interval = "forward"
        elif what == Happened.MARK and index < LAST:
            interval = calls[LAST - 1 - index].block
        elif what == Happened.MARK and index % 2:
            interval = calls[index // 2].block
    return found


_REPLAYS = (Happened.TAKE, Happened.IN_FORWARD, Happened.IN_BACKWARD)


def _inside(events: Sequence[Event]) -> npt.NDArray[np.bool_]:
    """Which events end an interval in which the measured step ran something again: another policy may not."""
    found, inside = np.zeros(len(events), dtype=np.bool_), False
    for index, event in enumerate(events):
        found[index] = inside
        if event[1] == Happened.TAKE:
            inside = True
        elif event[1] == Happened.TAKEN:
            inside = False
    return found


def _following(died: npt.NDArray[np.bool_]) -> IntArray:
    """For each event the last of the deaths that were found with it; itself where there were none."""
    following = np.arange(len(died))
    for at in range(len(died) - 2, -1, -1):
        if died[at + 1]:
            following[at] = following[at + 1]
    return following


def _own_events(
    events: Sequence[Event], calls: Sequence[CallFacts], waits: Sequence[dict[tuple[Happened, int], int]]
) -> list[list[Own]]:
    """Each call's events: its tape's, and the waits in which it may run something ahead of its use (`waits`)."""
    own: list[list[Own]] = [[] for _ in calls]
    ended: list[int] = []
    backward: set[int] = set()
    served: tuple[int, Happened] | None = None
    number = wait = 0
    for at, (tape, what, index, _, _) in enumerate(events):
        if tape >= 0:
            if not calls[tape].shape.nodes:  # it failed, or has nothing
                continue
            own[tape].append((at, Happened(what), index))
            if what == Happened.END:
                ended.append(tape)
        elif what == Happened.WAIT:
            if served is not None:
                own[served[0]].append((at, served[1], number))
                waits[served[0]][served[1], number] = wait
            number, wait = number + 1, wait + 1
        elif what == Happened.MARK and index >= 0:
            call, number = index // 2, 0
            if index % 2:
                backward.add(call)
                before = calls[call].before
                served = None if before is None else (before, Happened.IN_BACKWARD)
            else:
                oldest = (one for one in ended if calls[one].block == calls[call].block and one not in backward)
                found = next(oldest, None)
                served = None if found is None else (found, Happened.IN_FORWARD)
    return own


def _kinds(own: Sequence[Sequence[Own]], calls: Sequence[CallFacts]) -> list[int]:
    """Numbers of calls, the same for those whose tapes and events are the same."""
    seen: dict[tuple[object, ...], int] = {}
    return [
        seen.setdefault((call.shape, tuple((what, index) for _, what, index in events)), len(seen))
        for call, events in zip(calls, own, strict=True)
    ]
