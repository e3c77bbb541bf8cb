"""What a tape tells of one block: its operators as the layer problem states them, with what they cost.

One file: units, their layer and its problem are one reading of a tape.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from math import ceil, floor

from runtime.recompute.launches import BlockLaunches
from runtime.recompute.policy import BlockPolicy
from runtime.recompute.tape import StorePolicy, Tape, reads_of
from solvers.ir.errors import InvalidInput
from solvers.ir.recompute import LayerGroup, LayerOp, RecomputeLayerProblem, Window

GRAIN_BYTES = 512
"""What allocators of devices round sizes up to."""
SMALL_BYTES = 1 << 20
"""The largest request that allocators of devices serve from segments for small ones."""
OUT_OF_ORDER = (
    "its storage is read before it is written for the last time",
    "it is written with what was made after it",
)
"""Why plans store what a tape could run again: the problem knows one content and one place of each unit."""
HELD = "the program holds it until the block's backward pass"
STORED_BY = {True: (1, 2), False: (2, 3)}
"""Which policies of a unit's nodes (`StorePolicy`) store it: one that autograd saved, and one that it did not."""
BY_ITSELF = "it communicates, and other ranks may decide otherwise"
"""Why a plan that each rank makes for itself stores it: a rank that ran it again would wait for the others for ever."""


Value = tuple[int, int]
"""A result: the node that made it, and its place in `Node.made`."""


@dataclass(frozen=True)
class Unit:
    """Operators that stay or run again together: one that makes a storage, and those that write it in place.

    `nodes` are indices on the tape, `inputs` units. Of what one node made, what autograd saved (`saved`) and what
    only later operators read are two units: dropout's mask, and its result. `fixed` says why it never runs again,
    where it does not. `values` are its results, each as its node and its place in `Node.made`, and `sizes` what of
    `bytes` each is; `touched`: the nodes of the forward pass that read one, or write the storage later, in order.
    """

    name: str
    nodes: tuple[int, ...]
    saved: bool
    inputs: tuple[int, ...]
    time_us: float
    bytes: int
    communicates: bool
    fixed: str | None
    values: tuple[tuple[int, int], ...] = ()
    sizes: tuple[int, ...] = ()
    touched: tuple[int, ...] = ()


@dataclass(frozen=True)
class Layer:
    """One block as measured: its units in execution order, and the stalls at its collectives, in microseconds.

    `input_bytes` is what the block is given and autograd may need, the storages `given` of `Call.own`; `names` are its
    operators; `backward_us` is its
    backward pass without stalls and without what ran again, `backward_parts_us` the same between its waits (empty where
    that is not known), `forward_us` its forward pass, and `behind_us` the time from there until the next block's
    begins, or of the last one until its backward pass does. `launches`: the same where the device tells what launching
    takes; `beside`: that it told of other streams that had a part in the pass. It stands for so many `passes` at once.
    `made`: what each node that can run again made, in bytes, at most in a measured call. `gathers`: what it copied to
    the host took memory of the device.
    """

    units: tuple[Unit, ...]
    forward_waits_us: tuple[float, ...]
    backward_waits_us: tuple[float, ...]
    input_bytes: int
    names: tuple[str, ...]
    backward_us: float = 0.0
    forward_us: float = 0.0
    behind_us: float = 0.0
    given: tuple[int, ...] = ()
    backward_parts_us: tuple[float, ...] = ()
    launches: BlockLaunches | None = None
    passes: float = 1
    made: tuple[int, ...] = ()
    beside: bool = False
    gathers: bool = False

    def windows(self) -> tuple[tuple[Window, int], ...]:
        """The windows of the problem, each with its index among the waits of its pass.

        Rounded down: what fits by the problem's whole microseconds then fits by the clock.
        """
        found = []
        for phase, waits in (("forward", self.forward_waits_us), ("backward", self.backward_waits_us)):
            found += [
                (Window(name=f"{phase} {number}", phase=phase, time_us=floor(wait)), number)  # type: ignore[arg-type]
                for number, wait in enumerate(waits)
                if wait >= 1
            ]
        return tuple(found)

    def decided(self) -> tuple[int, ...]:
        """The units that a plan decides; the others are stored in any case."""
        return tuple(index for index, unit in enumerate(self.units) if unit.fixed is None)

    def fixed_bytes(self) -> int:
        """What is stored in any case."""
        return sum(unit.bytes for unit in self.units if unit.fixed is not None and unit.saved)

    def kept_bytes(self, policy: BlockPolicy) -> int:
        """What one such block more takes by a policy from its forward to its backward pass."""
        return self.input_bytes + sum(unit.bytes for unit in self._stored(policy))

    def small_bytes(self, policy: BlockPolicy) -> int:
        """Of that, what lies in blocks of at most `SMALL_BYTES`, which have segments of their own."""
        return sum(size for unit in self._stored(policy) for size in unit.sizes if size <= SMALL_BYTES)

    def _stored(self, policy: BlockPolicy) -> list["Unit"]:
        keep = policy.store.store
        return [unit for unit in self.units if keep and any(keep[one] in STORED_BY[unit.saved] for one in unit.nodes)]

    def storing(self, keep: Sequence[int]) -> StorePolicy:
        """What one call stores, by node; where sizes grow, no more bytes than in a call like the measured ones."""
        most = sum(size for size, stored in zip(self.made, keep, strict=True) if stored) if self.made else None
        return StorePolicy(tuple(keep), others=False, names=self.names, most_bytes=most)

    def held(self, units: Collection[int]) -> "Layer":
        """The layer with these units stored in any case: what the program holds wins nothing by running again."""
        return replace(
            self,
            units=tuple(
                replace(unit, fixed=HELD) if index in units and unit.fixed is None else unit
                for index, unit in enumerate(self.units)
            ),
        )

    def times(self, passes: float) -> "Layer":
        """So many calls of the block at once, which all do the same, as one: their bytes and times together."""
        if passes == 1:
            return self
        units = tuple(
            replace(
                unit,
                time_us=passes * unit.time_us,
                bytes=ceil(passes * unit.bytes),
                sizes=tuple(ceil(passes * size) for size in unit.sizes),
            )
            for unit in self.units
        )
        return replace(
            self,
            units=units,
            forward_waits_us=tuple(passes * wait for wait in self.forward_waits_us),
            backward_waits_us=tuple(passes * wait for wait in self.backward_waits_us),
            input_bytes=ceil(passes * self.input_bytes),
            backward_us=passes * self.backward_us,
            forward_us=passes * self.forward_us,
            behind_us=passes * self.behind_us,
            backward_parts_us=tuple(passes * part for part in self.backward_parts_us),
            launches=None,
            passes=passes,
        )

    def decided_alone(self) -> "Layer":
        """The layer for a plan of one rank's own: what communicates is stored."""
        units = (
            replace(unit, fixed=BY_ITSELF) if unit.communicates and unit.fixed is None else unit for unit in self.units
        )
        return replace(self, units=tuple(units))

    def problem(
        self,
        *,
        layers: int,
        inflight: int,
        last_stage: bool,
        budget_bytes: int,
        static_bytes: int,
        again: tuple[float, float] | None = None,
    ) -> RecomputeLayerProblem:
        """The layer problem of so many such blocks. Raises `InvalidInput` where nothing can be decided.

        `again`: which share of its output a unit adds to the working set where it runs again, of what autograd saved
        and of what only later operators read; None: all of it.
        """
        decided = self.decided()
        if not decided:
            raise InvalidInput("no operator of the blocks can run again: give other blocks")
        place = {unit: index for index, unit in enumerate(decided)}
        ops = tuple(
            LayerOp(
                name=self.units[index].name,
                time_us=ceil(self.units[index].time_us),
                output_bytes=self.units[index].bytes,
                inputs=tuple(place[one] for one in self.units[index].inputs if one in place),
                comm=self.units[index].communicates,
                needed=self.units[index].saved,
            )
            for index in decided
        )
        return RecomputeLayerProblem(
            name=f"{layers} blocks of {len(ops)} operators",
            layers=layers,
            inflight_microbatches=inflight,
            last_stage=last_stage,
            budget_bytes=budget_bytes,
            static_bytes=static_bytes,
            layer_input_bytes=self.input_bytes + self.fixed_bytes(),
            windows=tuple(window for window, _ in self.windows()),
            ops=ops,
            last_windowless=bool(self.backward_waits_us),  # no block's backward pass comes before the last one's
            again_bytes=None
            if again is None
            else tuple(floor(op.output_bytes * again[0 if op.needed else 1]) for op in ops),
        )


def policy_of(layer: Layer, group: LayerGroup) -> BlockPolicy:
    """The policy of a plan's group, by nodes of the tape."""
    decided, windows = layer.decided(), layer.windows()
    stored = {decided[index] for index in group.stored} | {
        index for index, unit in enumerate(layer.units) if unit.fixed is not None
    }
    keep = [0] * len(layer.names)
    for index in stored:
        unit = layer.units[index]
        for node in unit.nodes:
            keep[node] = max(keep[node], 1 if unit.saved else 2)
    ahead: dict[str, dict[int, list[int]]] = {"forward": {}, "backward": {}}
    for index, window in group.recomputed:
        if window == len(windows):
            continue
        told, wait = windows[window]
        ahead[told.phase].setdefault(wait, []).extend(layer.units[decided[index]].nodes)
    forward, backward = (
        {wait: tuple(sorted(nodes)) for wait, nodes in ahead[phase].items()} for phase in ("forward", "backward")
    )
    return BlockPolicy(layer.storing(keep), forward, backward)


def node_times(tape: Tape, waits_us: Sequence[float]) -> list[float]:
    """What running each node again takes, in microseconds: a collective's holds the wait for it.

    `waits_us` are the region's waits, in order; where they are not one for each collective, they are left out.
    """
    return [node.time_us + wait for node, wait in zip(tape.nodes, node_waits(tape, waits_us), strict=True)]


def node_waits(tape: Tape, waits_us: Sequence[float]) -> list[float]:
    """The wait for each node, likewise; 0 for those that do not communicate."""
    talks = [index for index, node in enumerate(tape.nodes) if node.communicates]
    waits = dict(zip(talks, waits_us, strict=True)) if len(talks) == len(waits_us) else {}
    return [waits.get(index, 0.0) for index in range(len(tape))]


def units_of(tape: Tape, passed_on: Collection[Value], waits_us: Sequence[float] = ()) -> tuple[Unit, ...]:
    """The units of a tape that has ended. `passed_on`: results that the next block is given, which holds them anyway.

    `waits_us` is as in `node_times`.
    """
    return _Reader(tape, passed_on, waits_us).units()


class _Reader:
    """Groups a tape's nodes into units, and says what each costs and needs."""

    def __init__(self, tape: Tape, passed_on: Collection[Value], waits_us: Sequence[float]) -> None:
        self._nodes = tape.nodes
        self._times = node_times(tape, waits_us)
        self._passed_on = passed_on
        self._maker: list[int] = []
        for index, node in enumerate(self._nodes):
            over = node.writes_over
            self._maker.append(index if over is None else self._maker[over])
        self._members: dict[int, list[int]] = {}
        for index, first in enumerate(self._maker):
            self._members.setdefault(first, []).append(index)
        self._readers = reads_of(self._nodes)
        self._parts: dict[tuple[int, bool], int] = {}

    def units(self) -> tuple[Unit, ...]:
        """One for what of a group's results is saved, and one for those that only later operators read."""
        found: list[Unit] = []
        for first, group in self._members.items():
            fixed, inputs = self._why_fixed(first, group), self._inputs(first, group)
            for saved in (True, False):
                values = self._values(group, saved)
                if not values:
                    continue
                self._parts[first, saved] = len(found)
                found.append(self._unit(group, saved, values, fixed, inputs))
        return tuple(found)

    def _unit(
        self, group: Sequence[int], saved: bool, values: Sequence[Value], fixed: str | None, inputs: tuple[int, ...]
    ) -> Unit:
        sizes = tuple(
            0 if (node, place) in self._passed_on else
            ceil(self._nodes[node].made[place][0] / GRAIN_BYTES) * GRAIN_BYTES for node, place in values
        )  # fmt: skip
        return Unit(
            name=self._nodes[group[-1]].name,
            nodes=tuple(group),
            saved=saved,
            inputs=inputs,
            time_us=sum(self._times[member] for member in group),
            bytes=sum(sizes),
            communicates=any(self._nodes[member].communicates for member in group),
            fixed=fixed,
            values=tuple(values),
            sizes=sizes,
            touched=tuple(sorted({*group[1:], *(one for value in values for one in self._readers.get(value, ()))})),
        )

    def _values(self, group: Sequence[int], saved: bool) -> list[Value]:
        """What the group left that autograd saved, or that is only read."""
        return [
            (member, place)
            for member in group
            for place, (_, is_saved) in enumerate(self._nodes[member].made)
            if is_saved is saved and (saved or (member, place) in self._readers) and (member == group[-1] or place > 0)
        ]

    def _inputs(self, first: int, group: Sequence[int]) -> tuple[int, ...]:
        found = set()
        for member in group:
            for maker, place in self._nodes[member].reads:
                source = self._maker[maker]
                if source == first:
                    continue
                saved = self._nodes[maker].made[place][1]
                part = self._parts.get((source, saved), self._parts.get((source, not saved)))
                if part is not None:
                    found.add(part)
        return tuple(sorted(found))

    def _why_fixed(self, first: int, group: Sequence[int]) -> str | None:
        """In the problem a unit stands where its first node does and its content is one: others are stored."""
        for member in group:
            if self._nodes[member].why_stored is not None:
                return self._nodes[member].why_stored
        inside = set(group)
        for index, node in enumerate(self._nodes):
            if index not in inside and any(one in inside and one != group[-1] for one in node.inputs):
                return OUT_OF_ORDER[0]
        if any(one > first and one not in inside for member in group for one in self._nodes[member].inputs):
            return OUT_OF_ORDER[1]
        return None
