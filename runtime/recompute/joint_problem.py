"""The joint problem of a measured step: what `runtime/recompute/joint.py` asks its solver.

Section 4's problem with times of the whole pass, what each forward operator takes beside the graph's tensors, and what
the program does with blocks' tensors outside of them (`outside.py`): what it reads is back by then, and what it holds
is in use until it lets go.
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

from msgspec.structs import replace

from runtime.recompute.footprint import Footprint, Peaks
from runtime.recompute.graph import OTHER, Place, Step, lasting
from runtime.recompute.layer import BlockPolicy, Layer
from runtime.recompute.outside import AFTER, BACKWARD, Name, Where
from runtime.recompute.session import store_everything
from runtime.recompute.tape import StorePolicy
from runtime.recompute.whole import begin_of
from solvers.ir.hardware import Hardware
from solvers.ir.joint import JointProblem
from solvers.planner import make_problem


def joint_problem(step: Step, layers: Sequence[Layer], hardware: Hardware, budget_bytes: int) -> JointProblem:
    """The measured step with times of the whole pass, and the memory that each forward operator takes for itself.

    What an op of the forward pass took, beyond what the step that stored nothing held by the graph, is its workspace;
    the graph has all of that in one place, as plans without swaps are fullest there. A block's end reads what the tape
    reads behind the units, and what the block was given, which the program holds until then.
    """
    problem = make_problem("joint", step.graph, hardware, budget_bytes)
    assert isinstance(problem, JointProblem)
    times, ends, small = _times(step, layers), _read_at_ends(step, layers), _small_parts(step, layers)
    elsewhere = used_elsewhere(step, layers)
    found = []
    for index, op in enumerate(problem.ops):
        more = elsewhere.get(index, set())
        size = 0 if step.places[index] == OTHER else op.output_bytes
        if step.places[index].kind == "begin":
            size = max(0, size - sum(problem.ops[one].output_bytes for one in more if _is_beside(step, layers, one)))
        found.append(
            replace(
                op,
                time_us=times[index],
                replay=op.replay and index not in small,
                inputs=tuple(sorted({*op.inputs, *ends.get(index, ()), *more})),
                output_bytes=size,
            )
        )
    return _with_workspaces(step, layers, replace(problem, ops=tuple(found)))


def _is_beside(step: Step, layers: Sequence[Layer], op: int) -> bool:
    """Whether the graph of the step that stored nothing does not know that op's output in the backward pass."""
    place = step.places[op]
    return place.kind == "unit" and place.index not in lasting(layers[place.block])


def _small_parts(step: Step, layers: Sequence[Layer]) -> set[int]:
    """Of two ops of the same nodes (dropout's mask and its result) the smaller: alone it would cost as much as both.

    It does not run again, and the other one has the time of both.
    """
    found, parts = set(), dict[tuple[int, tuple[int, ...]], int]()
    for op, place in enumerate(step.places):
        if place.kind != "unit":
            continue
        unit = layers[place.block].units[place.index]
        other = parts.setdefault((place.block, unit.nodes), op)
        if other != op:
            first = layers[place.block].units[step.places[other].index]
            found.add(op if unit.bytes <= first.bytes else other)
    return found


def _times(step: Step, layers: Sequence[Layer]) -> list[int]:
    """By op, whole µs in sum, too; what blocks take beside their units, and the loss, at the op behind each block."""
    small, times, owed = _small_parts(step, layers), [op.time_us for op in step.graph.ops], 0.0
    loss = begin_of(step) - 1
    for index, place in enumerate(step.places[:loss]):
        if place.kind == "unit":
            owed += 0.0 if index in small else layers[place.block].units[place.index].time_us
        elif place.kind == "output":
            layer = layers[place.block]
            owed += layer.forward_us - sum({unit.nodes: unit.time_us for unit in layer.units}.values())
            owed += layer.behind_us if place.block + 1 < len(layers) else 0.0
        times[index] = max(0, round(owed))
        owed -= times[index]
    times[loss] = max(0, round(owed + layers[-1].behind_us))
    return times


def _read_at_ends(step: Step, layers: Sequence[Layer]) -> dict[int, set[int]]:
    """By block's end: the ops that it reads beside those of the graph.

    Of what the measured step's tape held in any case, nobody knows until when the program does; at the latest until
    the block has returned, for which the op behind it may stand.
    """
    found: dict[int, set[int]] = {}
    given = 0
    for index, place in enumerate(step.places):
        if place.kind != "output":
            continue
        behind = max((unit.nodes[0] for unit in layers[place.block].units), default=-1)
        late = {
            op for op, one in enumerate(step.places[:index])
            if one.kind == "unit" and one.block == place.block
            and layers[one.block].units[one.index].last_read > behind
        }  # fmt: skip
        held = {op for op, one in enumerate(step.places[:index]) if one.block == place.block and _lasts(one, layers)}
        found[index], given = {given, *late, *held}, index
        if step.places[index + 1] == OTHER:
            found[index + 1] = held
    return found


def _lasts(place: Place, layers: Sequence[Layer]) -> bool:
    """Whether it is a unit that the step that stored nothing held until its block's backward pass."""
    return place.kind == "unit" and place.index in lasting(layers[place.block])


def used_elsewhere(step: Step, layers: Sequence[Layer]) -> dict[int, set[int]]:
    """By op: whose outputs the program reads outside of their block while the op runs, or lets go of then.

    It holds what it lets go of until then, and can keep it on the host as well. What it holds beyond is not run again
    (`held_units`), as that would win nothing.
    """
    found: dict[int, set[int]] = {}
    at = _Places(step, layers)
    for op, place in enumerate(step.places):
        if place.kind == "unit":
            use = step.uses.of_values(place.block, layers[place.block].units[place.index].values)
        elif (block := given_to(place, len(layers))) is not None:
            use = step.uses.of_given(block)
        else:
            continue
        places = set(use.reads)
        if place.kind == "unit" and (0, place.block + 1, -1) <= use.until < BACKWARD:
            places.add(use.until)
        for where in places:
            for reader in at.ops(where):
                if reader > op:
                    found.setdefault(reader, set()).add(op)
    return found


class _Places:
    """Which ops of the graph stand for a place of the pass.

    Behind the last block these are two: until the program has done with what blocks made, and the loss.
    """

    def __init__(self, step: Step, layers: Sequence[Layer]) -> None:
        behind, operators = done_with(step, layers)
        starts = [*_starts(step, layers, (behind, operators + 1)), (behind + 1, 0)]
        self._begins: list[tuple[int, int]] = []
        self._ops: list[int] = []
        for op, (begin, end) in enumerate(pairwise(starts)):
            if begin < end:
                self._begins.append(begin)
                self._ops.append(op)
        self._backward: dict[int, list[int]] = {}
        for op in range(begin_of(step), len(step.places)):
            self._backward.setdefault(step.places[op].block, []).append(op)

    def forward(self, where: Where) -> int:
        """The one op of a place in the forward pass."""
        return self._ops[max(0, bisect_right(self._begins, where[1:]) - 1)]

    def ops(self, where: Where) -> list[int]:
        """In order; none behind the pass."""
        if where >= BACKWARD:
            return self._backward.get(-where[1], []) if where < AFTER else []
        return [self.forward(where)]


def _starts(step: Step, layers: Sequence[Layer], loss: tuple[int, int]) -> list[tuple[int, int]]:
    """At which block and node the forward pass's ops begin."""
    starts: list[tuple[int, int]] = []
    for place in step.places[: begin_of(step)]:
        if place.kind == "unit":
            starts.append((place.block, layers[place.block].units[place.index].nodes[0]))
        elif place.kind == "output":
            units = layers[place.block].units
            starts.append((place.block, 1 + max((unit.nodes[0] for unit in units), default=-1)))
        elif place.kind == "given" or not starts:
            starts.append((0, -1))
        else:
            starts.append(loss if place.kind == "loss" else starts[-1])
    return [max(starts[: index + 1]) for index in range(len(starts))]


def done_with(step: Step, layers: Sequence[Layer]) -> tuple[int, int]:
    """Behind the last block, and by which operator there the program has done with what blocks made."""
    places = [
        where
        for block, layer in enumerate(layers)
        for use in (step.uses.of_given(block), *(step.uses.of_values(block, unit.values) for unit in layer.units))
        for where in (*use.reads, use.until)
        if where[:2] == (0, len(layers))
    ]
    return (len(layers), max(places)[2]) if places else (len(layers), 0)


def _until(step: Step, layers: Sequence[Layer], problem: JointProblem) -> list[int]:
    """By op of the forward pass: the last one in which the step that stored nothing held its output, by the problem."""
    first = begin_of(step)
    until = list(range(first))
    for t, op in enumerate(problem.ops):
        for one in op.inputs:
            if one < first and (t < first or step.places[one].kind != "unit"):
                until[one] = min(t, first)
    for one, place in enumerate(step.places[:first]):
        if _lasts(place, layers):
            until[one] = first
    return until


def _with_workspaces(step: Step, layers: Sequence[Layer], problem: JointProblem) -> JointProblem:
    """The problem with what the forward pass's ops took more; the backward pass's have that as an op's output.

    Where the graph's static memory is more than there was, as it knows nothing of what the program holds beside, some
    of it is theirs, too.
    """
    first, more = begin_of(step), _beyond(step, layers, problem)
    static = max(0, -min(more.values(), default=0))
    ops = [
        replace(op, workspace_bytes=static + more[index] if index in more else 0)
        if index < first
        else replace(op, output_bytes=op.output_bytes + (static if step.places[index].kind == "begin" else 0))
        for index, op in enumerate(problem.ops)
    ]
    return replace(problem, static_bytes=problem.static_bytes - static, ops=tuple(ops))


def _beyond(step: Step, layers: Sequence[Layer], problem: JointProblem) -> dict[int, int]:
    """By op of the forward pass: what it took in the step that stored nothing beyond what that held by the problem.

    What was gone by then in that step may be there in one that stores it, and counts twice.
    """
    first, until = begin_of(step), _until(step, layers, problem)
    held = [problem.static_bytes - step.beyond_bytes] * first
    for one, last in enumerate(until):
        for t in range(one, min(last + 1, first)):
            held[t] += problem.ops[one].output_bytes
    found, gone = dict[int, int](), set[int]()
    at, names = _Places(step, layers), _names(step, layers)
    for told in step.uses.forward:
        gone = set() if told.first else gone
        gone.update(names[name] for name in told.gone if name in names)
        t = at.forward(told.where)
        absent = sum(problem.ops[one].output_bytes for one in gone if one <= t <= until[one])
        more = told.bytes - held[t] + absent
        found[t] = max(found.get(t, more), more)
    return found


def _names(step: Step, layers: Sequence[Layer]) -> dict[Name, int]:
    """Which op stands for a storage."""
    found: dict[Name, int] = {}
    for op, place in enumerate(step.places):
        if place.kind == "unit":
            unit = layers[place.block].units[place.index]
            found |= {(place.block, node, one): op for node, one in unit.values}
        elif (block := given_to(place, len(layers))) is not None:
            found |= {name: op for name in step.uses.by_name if name[:2] == (block, -1) and step.uses.stays(name)}
    return found


def given_to(place: Place, blocks: int) -> int | None:
    """Which block is given that op's output."""
    block = 0 if place.kind == "given" else place.block + 1 if place.kind == "output" else blocks
    return block if block < blocks else None


def peaks_all_there(footprint: Footprint, layers: Sequence[Layer]) -> Peaks:
    """The measured step's peaks, of each block's backward pass where all that it reads is there when it begins.

    So a plan has it; a step that stores nothing runs some of it again when some else is gone.
    """
    nothing = [BlockPolicy(_lasting_alone(layer), {}, {}) for layer in layers]
    everything = store_everything(len(layers))
    backward = dict(footprint.peaks.backward)
    for block in backward:
        policies = [everything[block] if one == block else policy for one, policy in enumerate(nothing)]
        backward[block] = footprint.peaks_under(policies).backward[block]
    return Peaks(footprint.peaks.forward, footprint.peaks.loss, backward)


def _lasting_alone(layer: Layer) -> StorePolicy:
    """A block that stores only what no plan runs again."""
    keep = [0] * len(layer.names)
    for unit in (layer.units[index] for index in lasting(layer)):
        for node in unit.nodes:
            keep[node] = max(keep[node], 1 if unit.saved else 2)
    return StorePolicy(tuple(keep), others=False, names=layer.names)
