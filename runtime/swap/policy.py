"""From a schedule to what the engine does in the next iteration: tensors by their features, operators by anchors."""

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from runtime.device.native import core
from runtime.execute.program import ACTION_KINDS, TURN, op_of
from runtime.swap.landmarks import NONE, Landmark, Landmarks, Spot
from solvers.ir.fields import TensorId
from solvers.ir.graph import OpGraph, Tensor
from solvers.ir.schedule import Action, Schedule
from solvers.timeline.gaps import owner_of

Sightings: TypeAlias = Mapping[tuple[int, int], core.SwapSighting]
"""By tensor of the graph and operator: how the engine saw it there."""


class Target(NamedTuple):
    """A tensor that leaves after the operator at which it is sighted with these features.

    `ordinal` sightings with the same `key` come before it in the iteration. `op` and `position`, the operator's number
    and the index of the sighting there, are what matching by index goes by. `result`: the operator made it and no
    other had used it yet. It leaves where the forward pass has worked on `least_pass_bytes` by then. `spot` counts
    lookalikes from the latest landmark instead. Until operator `latest_op` it may wait for the host to read from the
    device first. One with the address of its `storage` outlives iterations: it leaves at an event.
    """

    label: str
    bytes: int
    key: int
    ordinal: int
    op: int
    position: int
    result: bool
    least_pass_bytes: int = 0
    spot: Spot = Spot()
    latest_op: int = 0
    storage: int = 0


class Anchor(NamedTuple):
    """An operator by phase and id, and how many of these came before it in the iteration."""

    phase: int
    operator: int
    ordinal: int


class Event(NamedTuple):
    """What happens before the operator with that anchor (by index: before operator `op`) to some of the targets.

    `spot` counts operators from the latest landmark instead.
    """

    anchor: Anchor
    op: int
    do: str
    targets: tuple[int, ...]
    spot: Spot = Spot()


class Pace(NamedTuple):
    """What leaves makes way for reads of the host at these operators; a copy takes so many operators' time."""

    reads: tuple[int, ...] = ()
    latency: float = 0.0
    per_byte: float = 0.0

    def native(self) -> core.SwapPace:
        """In the engine's own type."""
        return core.SwapPace(*self)


class Policy(NamedTuple):
    """What the engine does in the next iteration.

    `arrivals` pairs each target that returns with the operator that then uses it, which matters only without the guard.
    `unseen` tensors of the schedule stay on the device, as the engine could not be told how to find them. `on_demand`:
    blocks go once memory is asked for, not when the schedule says, as it was made for a larger iteration than most.
    Spots are told by `landmarks`, each at its operator; without any, or once one is gone, by counts from the
    iteration's begin. `pace` says for which reads of the host what leaves makes way.
    """

    targets: tuple[Target, ...]
    events: tuple[Event, ...]
    arrivals: tuple[tuple[int, int], ...]
    unseen: int = 0
    on_demand: bool = False
    landmarks: tuple[Landmark, ...] = ()
    landmark_ops: tuple[int, ...] = ()
    pace: Pace = Pace()

    def making_way(self, pace: Pace, latest: Mapping[str, int]) -> "Policy":
        """The same, but what leaves waits for the host's reads, each until its operator (by label) at most."""
        return self._replace(
            targets=tuple(target._replace(latest_op=latest.get(target.label, 0)) for target in self.targets), pace=pace
        )

    def sparing_less(self, share: float) -> "Policy":
        """The same, but what smaller iterations keep leaves in those of that share of the size, too."""
        return self._replace(
            targets=tuple(
                target._replace(least_pass_bytes=int(share * target.least_pass_bytes)) for target in self.targets
            )
        )

    @property
    def bytes(self) -> int:
        """Bytes of all tensors that leave."""
        return sum(target.bytes for target in self.targets)

    @property
    def host_bytes(self) -> int:
        """What an arena of page-locked memory needs for all of them, from leaving to the use after the return."""
        moments = [(target.op, 1, number) for number, target in enumerate(self.targets)]
        moments += [(use, 0, number) for number, use in self.arrivals]
        requests: list[tuple[bool, int]] = []
        taken: dict[int, int] = {}
        for _, leaves, number in sorted(moments):
            if leaves:
                taken[number] = len(taken)
                requests.append((True, self.targets[number].bytes))
            elif number in taken:
                requests.append((False, taken[number]))
        return core.arena_bytes(requests)

    def native(self) -> core.SwapPolicy:
        """The policy in the engine's own type."""
        events = [
            core.SwapEvent(
                *event.anchor,
                op=event.op,
                kind=ACTION_KINDS[event.do],
                targets=list(event.targets),
                landmark=event.spot.landmark,
                since=event.spot.since,
            )
            for event in self.events
        ]
        targets = [core.SwapTarget(*target[:-3], *target.spot, *target[-2:]) for target in self.targets]
        landmarks = [
            core.SwapLandmark(*landmark, op) for landmark, op in zip(self.landmarks, self.landmark_ops, strict=True)
        ]
        return core.SwapPolicy(targets, events, list(self.arrivals), self.on_demand, landmarks, self.pace.native())


def anchors(operators: Sequence[int], phases: Sequence[int]) -> list[Anchor]:
    """The anchor of each operator of an iteration."""
    seen: dict[tuple[int, int], int] = {}
    found = []
    for phase, operator in zip(phases, operators, strict=True):
        ordinal = seen.get((phase, operator), 0)
        seen[phase, operator] = ordinal + 1
        found.append(Anchor(phase, operator, ordinal))
    return found


def locate(
    schedule: Schedule,
    graph: OpGraph,
    operators: Sequence[int],
    phases: Sequence[int],
    sightings: Sightings,
    least_shares: Mapping[TensorId, float] | None = None,
    landmarks: Landmarks = NONE,
) -> Policy:
    """Say of each action of a swap schedule how the engine finds its tensors and its operator in the next iteration.

    All arguments describe one iteration: operator j of the graph is `operators[j]`. A tensor that was not sighted at
    the operator after which it should leave stays on the device. Those with `least_shares` leave in iterations of that
    share of this one's size or more, which is told from what the forward pass has worked on by then. Spots are told by
    its `landmarks`, too. What outlives the iteration may leave where nobody uses it: it is told by its storage.
    """
    tensors = {tensor.id: tensor for tensor in graph.tensors}
    leaving = [(name, op_of(action)) for action in _issued(schedule, "swap_out") for name in action.data]
    seen = {name: (op, found) for name, op in leaving if (found := _sighted(tensors[name], op, sightings)) is not None}
    numbers = {name: number for number, name in enumerate(seen)}
    places = anchors(operators, phases)
    unsighted = {name: op for name, (op, found) in seen.items() if found.op != op}
    moves: list[tuple[int, str, tuple[TensorId, ...]]] = [
        (op + 1, "swap_out", (name,)) for name, op in unsighted.items()
    ]
    moves += [(op_of(action), action.do, action.data) for action in _issued(schedule, "release", "swap_in")]
    events = [
        Event(places[op], op, do, those, landmarks.spot(op))
        for op, do, data in moves
        if (those := tuple(numbers[name] for name in data if name in numbers))
    ]
    arrivals = [
        (numbers[name], use)
        for action in _issued(schedule, "swap_in")
        for name in action.data
        if name in numbers and (use := _next_use(tensors[name].uses, op_of(action))) is not None
    ]
    shares = least_shares or {}
    targets = [
        _held(tensors[name], found, op, math.ceil(shares.get(name, 0.0) * _passed_bytes(sightings, op)))
        if name in unsighted
        else _target(tensors[name], found, math.ceil(shares.get(name, 0.0) * found.pass_bytes), landmarks)
        for name, (op, found) in seen.items()
    ]
    return Policy(
        tuple(targets),
        tuple(events),
        tuple(arrivals),
        unseen=len(leaving) - len(seen),
        landmarks=landmarks.found,
        landmark_ops=landmarks.ops,
    )


def _sighted(tensor: Tensor, op: int, sightings: Sightings) -> core.SwapSighting | None:
    """A tensor where it leaves; of one that outlives the iteration, and which nobody uses there, where it is used."""
    found = (sightings.get((owner_of(tensor.id), at)) for at in (op, *(tensor.uses if tensor.born is None else ())))
    return next((sighting for sighting in found if sighting is not None), None)


def _passed_bytes(sightings: Sightings, op: int) -> int:
    """What the forward pass has worked on by the end of the operator."""
    return max((sighting.pass_bytes for (_, at), sighting in sightings.items() if at == op), default=0)


def _target(tensor: Tensor, found: core.SwapSighting, least_pass_bytes: int, landmarks: Landmarks) -> Target:
    return Target(
        repr(tensor.id),
        tensor.bytes,
        found.key,
        found.ordinal,
        found.op,
        found.position,
        found.result,
        least_pass_bytes,
        landmarks.sighted.get((found.op, found.position), Spot()),
    )


def _held(tensor: Tensor, found: core.SwapSighting, op: int, least_pass_bytes: int) -> Target:
    """One that leaves where nobody uses it, told by its storage."""
    return Target(repr(tensor.id), tensor.bytes, 0, 0, op, 0, False, least_pass_bytes, storage=found.storage)


def _issued(schedule: Schedule, *kinds: str) -> list[Action]:
    """The actions of those kinds in the order of issue; those of one lane and operator keep the schedule's order."""
    found = [action for action in schedule.actions if action.do in kinds]
    return sorted(found, key=lambda action: (op_of(action), TURN[action.do]))


def _next_use(uses: tuple[int, ...], op: int) -> int | None:
    place = bisect_left(uses, op)
    return uses[place] if place < len(uses) else None
