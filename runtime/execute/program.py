"""From a schedule to the engine's table: for each operator what stands before it, and what follows it."""

from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass, field

from runtime.device.native import core
from solvers.ir.errors import InvalidProblem
from solvers.ir.fields import TensorId, require
from solvers.ir.graph import OpGraph
from solvers.ir.schedule import Action, Schedule

ACTION_KINDS = {
    "release": core.SwapActionKind.RELEASE,
    "swap_in": core.SwapActionKind.SWAP_IN,
    "swap_out": core.SwapActionKind.SWAP_OUT,
}
TURN = {"release": 0, "swap_in": 1, "compute": 2, "swap_out": 3}
"""The order in which the host issues what belongs to one op."""


@dataclass
class _Row:
    """The table's row of one op, while it is being written."""

    arguments: list[tuple[int, int]] = field(default_factory=list)
    results: list[tuple[int, int]] = field(default_factory=list)
    inner: list[tuple[int, int]] = field(default_factory=list)
    before: list[core.SwapAction] = field(default_factory=list)
    waits: list[core.SwapWait] = field(default_factory=list)
    arrivals: list[int] = field(default_factory=list)
    after: list[core.SwapAction] = field(default_factory=list)


def swap_program(schedule: Schedule, graph: OpGraph) -> core.SwapProgram:
    """The table of a swap schedule on that graph.

    Raises `InvalidProblem` where the schedule holds other actions than those of swapping, computes other ops than the
    graph's, names unknown tensors, or would need an event before the host has issued what it records.
    """
    return _Writer(schedule, graph).program()


def host_need_bytes(schedule: Schedule, graph: OpGraph) -> int:
    """The most bytes that the schedule keeps on the host at once: from a swap-out to the use after the swap-in."""
    tensors = {tensor.id: tensor for tensor in graph.tensors}
    changes: list[tuple[int, int, int]] = []
    for action in schedule.actions:
        for name in action.data:
            if action.do == "swap_out":
                changes.append((op_of(action), 1, tensors[name].bytes))
            elif action.do == "swap_in":
                arrival = _first_use_from(tensors[name].uses, op_of(action))
                changes.append((len(graph.ops) if arrival is None else arrival, 0, -tensors[name].bytes))
    held = most = 0
    for _, _, change in sorted(changes):
        held += change
        most = max(most, held)
    return most


def host_requests(schedule: Schedule, graph: OpGraph) -> list[tuple[bool, int]]:
    """What the schedule asks of page-locked memory, in the engine's order, as `core.arena_bytes` takes it.

    At an op first what returns gives its memory back, then what leaves takes some.
    """
    tensors = {tensor.id: tensor for tensor in graph.tensors}
    at_op: dict[int, tuple[list[TensorId], list[TensorId]]] = defaultdict(lambda: ([], []))
    for action in sorted(schedule.actions, key=lambda action: (op_of(action), TURN[action.do])):
        for name in action.data:
            if action.do == "swap_out":
                at_op[op_of(action)][1].append(name)
            elif action.do == "swap_in":
                arrival = _first_use_from(tensors[name].uses, op_of(action))
                at_op[len(graph.ops) if arrival is None else arrival][0].append(name)
    requests: list[tuple[bool, int]] = []
    number: dict[TensorId, int] = {}
    for _, (returning, leaving) in sorted(at_op.items()):
        requests += [(False, number[name]) for name in returning]
        for name in leaving:
            number[name] = len(number)
            requests.append((True, tensors[name].bytes))
    return requests


def host_rounded_bytes(schedule: Schedule, graph: OpGraph) -> int:
    """As `host_need_bytes`, in blocks of powers of two that only tensors of the same block size use again."""
    sizes: list[int] = []
    held: dict[int, int] = defaultdict(int)
    most: dict[int, int] = defaultdict(int)
    for takes, number in host_requests(schedule, graph):
        if takes:
            sizes.append(1 << max(number - 1, 0).bit_length())
        size = sizes[-1] if takes else sizes[number]
        held[size] += size if takes else -size
        most[size] = max(most[size], held[size])
    return sum(most.values())


def op_of(action: Action) -> int:
    """The op index of an action; raises `InvalidProblem` where it has none."""
    require(action.op is not None, f"action {action.id} ({action.do}) names no op: say where it stands")
    assert action.op is not None
    return action.op


def _first_use_from(uses: tuple[int, ...], op: int) -> int | None:
    place = bisect_left(uses, op)
    return uses[place] if place < len(uses) else None


class _Writer:
    """One pass over the schedule, in the order in which the host will issue it."""

    def __init__(self, schedule: Schedule, graph: OpGraph) -> None:
        self.graph = graph
        self.actions = schedule.actions
        self.tensors = {tensor.id: tensor for tensor in graph.tensors}
        self._check_actions()
        self.issued = sorted(schedule.actions, key=lambda action: (op_of(action), TURN[action.do]))
        self.turn = {action.id: turn for turn, action in enumerate(self.issued)}
        self.index = {action.id: index for index, action in enumerate(schedule.actions)}
        self.by_id = {action.id: action for action in schedule.actions}
        self._check_order(schedule)
        self._check_flights()
        self.compute_lane = next(action.lane for action in self.actions if action.do == "compute")
        self.frontier = self._frontiers()
        self.awaited = {
            wait
            for action in self.actions
            for wait in action.after
            if self.by_id[wait].lane != action.lane and self.frontier[action.id] != wait
        }
        names = dict.fromkeys(name for action in self.issued for name in action.data)
        self.slots = {name: slot for slot, name in enumerate(names)}

    def program(self) -> core.SwapProgram:
        """Write the rows."""
        rows: dict[int, _Row] = defaultdict(_Row)
        for action in self.issued:
            row = rows[op_of(action)]
            if action.do == "compute":
                row.waits = self._waits(action)
            elif action.do == "swap_out":
                self._locate(action, row)
                row.after.append(self._action(action))
            else:
                row.before.append(self._action(action))
            if action.do == "swap_in":
                self._arrive(action, rows)
        slots = [core.SwapSlot(repr(name), self.tensors[name].bytes) for name in self.slots]
        written = [self._row(action, rows[op_of(action)]) for action in self.issued if action.do == "compute"]
        return core.SwapProgram(written, slots, len(self.actions))

    def _check_actions(self) -> None:
        for action in self.actions:
            require(
                action.do in TURN,
                f"action {action.id} does {action.do}, which the swap executor does not execute: "
                "give a schedule of compute, swap_out, release and swap_in only",
            )
            for name in action.data:
                require(name in self.tensors, f"action {action.id} names tensor {name!r}, which the graph lacks")
        computed = [action.op for action in self.actions if action.do == "compute"]
        if computed != list(range(len(self.graph.ops))):
            raise InvalidProblem(
                f"the schedule computes {len(computed)} ops, not each of the graph's {len(self.graph.ops)} once and in "
                "order: lower a plan of this graph"
            )

    def _check_order(self, schedule: Schedule) -> None:
        """An event must be recorded before it is waited for, and a lane is a queue."""
        last: dict[str, Action] = {}
        for action in schedule.actions:
            before = [self.by_id[wait] for wait in action.after]
            before += [last[action.lane]] if action.lane in last else []
            for earlier in before:
                require(
                    self.turn[earlier.id] < self.turn[action.id],
                    f"action {action.id} ({action.do} at op {action.op}) comes after action {earlier.id} "
                    f"({earlier.do} at op {earlier.op}), which is issued later: correct the ops or the order",
                )
            last[action.lane] = action

    def _check_flights(self) -> None:
        """A tensor leaves once, and is released and swapped in only then, in this order."""
        flights: dict[TensorId, list[str]] = defaultdict(list)
        for action in self.issued:
            for name in action.data:
                flights[name].append(action.do)
        for name, kinds in flights.items():
            require(
                kinds in (["swap_out"], ["swap_out", "release"], ["swap_out", "release", "swap_in"]),
                f"tensor {name!r} goes through {', '.join(kinds)}: let it go out, be released and come in, once",
            )

    def _frontiers(self) -> dict[int, int | None]:
        """For each action the last action of the compute lane that is issued before it."""
        frontier: dict[int, int | None] = {}
        last: int | None = None
        for action in self.issued:
            frontier[action.id] = last
            if action.lane == self.compute_lane:
                last = action.id
        return frontier

    def _waits(self, action: Action) -> list[core.SwapWait]:
        return [
            core.SwapWait(self.index[wait], self.frontier[action.id] == wait and action.lane != self.compute_lane)
            for wait in action.after
            if self.by_id[wait].lane != action.lane
        ]

    def _action(self, action: Action) -> core.SwapAction:
        slots = [self.slots[name] for name in action.data]
        awaited = action.id in self.awaited
        return core.SwapAction(ACTION_KINDS[action.do], self.index[action.id], slots, self._waits(action), awaited)

    def _row(self, action: Action, row: _Row) -> core.SwapRow:
        op = self.graph.ops[op_of(action)]
        return core.SwapRow(
            name=op.name,
            id=self.index[action.id],
            awaited=action.id in self.awaited,
            arguments=[core.SwapLocator(position, slot) for position, slot in sorted(row.arguments)],
            results=[core.SwapLocator(position, slot) for position, slot in sorted(row.results)],
            inner=[core.SwapLocator(position, slot) for position, slot in sorted(row.inner)],
            returns=bool(op.outputs),
            sizes=self._sizes(op_of(action)),
            before=row.before,
            waits=row.waits,
            arrivals=row.arrivals,
            after=row.after,
        )

    def _locate(self, action: Action, row: _Row) -> None:
        """Say how the engine finds the tensors: by their place among the op's arguments or results."""
        op = self.graph.ops[op_of(action)]
        for name in action.data:
            slot = self.slots[name]
            if name in op.inputs:
                row.arguments.append((op.inputs.index(name), slot))
            elif name in op.outputs:
                row.results.append((op.outputs.index(name), slot))
            elif self.tensors[name].born == action.op:
                row.inner.append((self._inner(action, name), slot))
            else:
                raise InvalidProblem(
                    f"action {action.id} swaps out tensor {name!r} after op {action.op} ({op.name}), "
                    "which does not touch it: swap it out after an op that does"
                )

    def _inner(self, action: Action, name: TensorId) -> int:
        place = self.tensors[name].inner
        if place is None:
            raise InvalidProblem(
                f"action {action.id} swaps out tensor {name!r}, which op {action.op} makes and does not return, and "
                "the graph does not say where it is found (`inner`): profile the step again"
            )
        return place

    def _sizes(self, op: int) -> list[tuple[int, int]]:
        """The sizes of what the op makes and returns, with their index among its results."""
        outputs = self.graph.ops[op].outputs
        return [
            (place, self.tensors[name].bytes) for place, name in enumerate(outputs) if self.tensors[name].born == op
        ]

    def _arrive(self, action: Action, rows: dict[int, _Row]) -> None:
        for name in action.data:
            use = _first_use_from(self.tensors[name].uses, op_of(action))
            if use is not None:
                rows[use].arrivals.append(self.slots[name])
