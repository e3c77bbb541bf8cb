"""The joint problem of a measured step: what `runtime/recompute/joint.py` asks its solver.

Section 4's problem with times of the whole pass, what each forward operator takes beside the graph's tensors, and what
the program does with blocks' tensors outside of them (`outside.py`): what it reads is back by then, and what it holds
is in use until it lets go.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from math import ceil

import numpy as np
from msgspec.structs import replace

from runtime.recompute.footprint import Footprint, Peaks
from runtime.recompute.graph import Place, Step, lasting
from runtime.recompute.joint_launches import with_launches
from runtime.recompute.layer import Layer
from runtime.recompute.outside import BACKWARD, Name
from runtime.recompute.places import Places, given_to
from runtime.recompute.policy import BlockPolicy, store_everything
from runtime.recompute.tape import StorePolicy
from runtime.recompute.whole import begin_of
from solvers.ir.hardware import Hardware
from solvers.ir.joint import JointProblem
from solvers.planner import make_problem


def joint_problem(step: Step, layers: Sequence[Layer], hardware: Hardware, budget_bytes: int) -> JointProblem:
    """The measured step with times of the whole pass, and the memory that each forward operator takes for itself.

    What an op of the forward pass took, beyond what the step that stored nothing held by the graph, is its workspace;
    the graph has all of that in one place, as plans without swaps are fullest there.
    """
    problem = make_problem("joint", step.graph, hardware, budget_bytes)
    assert isinstance(problem, JointProblem)
    small, within, elsewhere = small_parts(step, layers), _read_within(step, layers), used_elsewhere(step, layers)
    launched = with_launches(problem.ops, step, layers, small)
    timed = [replace(op, time_us=time) for op, time in zip(problem.ops, _times(step, layers), strict=True)]
    found = []
    for index, op in enumerate(launched or timed):
        more = elsewhere.get(index, set())
        size = 0 if step.places[index].kind in ("other", "behind") else op.output_bytes
        if step.places[index].kind == "begin":
            size = max(0, size - sum(problem.ops[one].output_bytes for one in more if _is_beside(step, layers, one)))
        found.append(
            replace(
                op,
                copies=_copies(step, layers, index),
                replay=op.replay and index not in small,
                inputs=tuple(sorted({*op.inputs, *within.get(index, ()), *more})),
                output_bytes=size,
            )
        )
    launch_us = 0 if launched is None else round(hardware.device().launch_us)
    return _with_workspaces(step, layers, replace(problem, ops=tuple(found), launch_us=launch_us))


def _copies(step: Step, layers: Sequence[Layer], op: int) -> int:
    """How many storages its output is, each of which moves by itself."""
    place = step.places[op]
    if place.kind == "unit":
        layer = layers[place.block]
        return max(1, ceil(layer.passes) * sum(size > 0 for size in layer.units[place.index].sizes))
    block = given_to(place, len(layers))
    return 1 if block is None else max(1, ceil(layers[block].passes) * len(layers[block].given))


def _is_beside(step: Step, layers: Sequence[Layer], op: int) -> bool:
    """Whether the graph of the step that stored nothing does not know that op's output in the backward pass."""
    place = step.places[op]
    return place.kind == "unit" and place.index not in lasting(layers[place.block])


def small_parts(step: Step, layers: Sequence[Layer]) -> set[int]:
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
    small, times, owed = small_parts(step, layers), [op.time_us for op in step.graph.ops], 0.0
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


def _read_within(step: Step, layers: Sequence[Layer]) -> dict[int, set[int]]:
    """By op of a block's forward pass: whose outputs its nodes read or write, as the tape knows, beside the graph.

    An op stands for the nodes until the next one's first, so for those that no unit has, too. Which nodes read what the
    block is given the tape does not know: all of its ops do. Of two ops of the same nodes the first is not away before
    both have run. Of what the measured step's tape held in any case, nobody knows until when the program does; at the
    latest until the block has returned, for which the op behind it may stand.
    """
    found: dict[int, set[int]] = {}
    at, given, parts = Places(step, layers), 0, dict[tuple[int, tuple[int, ...]], int]()
    for op, place in enumerate(step.places[: begin_of(step)]):
        if place.kind in ("unit", "output"):
            found.setdefault(op, set()).add(given)
        if place.kind == "unit":
            unit = layers[place.block].units[place.index]
            if (other := parts.setdefault((place.block, unit.nodes), op)) != op:
                found[op].add(other)
            for node in unit.touched:
                reader = at.forward((0, place.block, node))
                if reader > op:
                    found.setdefault(reader, set()).add(op)
        elif place.kind == "output":
            given = op
            own = (one for one in range(op) if step.places[one].block == place.block)
            held = {one for one in own if _lasts(step.places[one], layers)}
            found[op] |= held
            if step.places[op + 1].kind in ("other", "behind"):
                found[op + 1] = held
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
    at = Places(step, layers)
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
    beside = _made_behind(step, layers, more)
    ops = [
        replace(op, workspace_bytes=static + more[index] + beside[index] if index in more else 0)
        if index < first
        else replace(
            op,
            output_bytes=op.output_bytes + (static if step.places[index].kind == "begin" else 0),
            workspace_bytes=_larger_gradient(step.places[index], layers),
        )
        for index, op in enumerate(problem.ops)
    ]
    if any(layer.passes > 1 for layer in layers):  # beside what all passes hold at the loss (`graph.py`), one runs
        most = max(op.workspace_bytes + (op.output_bytes if at >= first else 0) for at, op in enumerate(ops))
        ops[first - 1] = replace(ops[first - 1], workspace_bytes=max(most, ops[first - 1].workspace_bytes))
    return replace(problem, static_bytes=problem.static_bytes - static, ops=tuple(ops))


def _made_behind(step: Step, layers: Sequence[Layer], more: Mapping[int, int]) -> list[int]:
    """By op of the forward pass: what its block made behind it, no plan knows, and is there when the op runs again.

    In-place operators copy what they overwrite for autograd, as in a GRU's cell. What is in use beyond the problem does
    not go before the backward pass, as far as later ops of the forward pass have as much in use.
    """
    first = begin_of(step)
    least, lasts = min((more[op] for op in more if op == first - 1), default=0), [0] * (first + 1)
    for op in range(first - 1, -1, -1):
        least = lasts[op] = min(least, more.get(op, least))
    lasts[first] = lasts[first - 1]
    end = {place.block: op + 1 for op, place in enumerate(step.places[:first]) if place.kind == "output"}
    waits = any(layer.backward_waits_us for layer in layers)  # in which blocks before run again
    found = [0] * first
    for op, place in enumerate(step.places[:first]):
        if place.kind == "unit":
            block = min(place.block + waits, len(layers) - 1)
            found[op] = lasts[end[block]] - lasts[op]
    return found


def _larger_gradient(place: Place, layers: Sequence[Layer]) -> int:
    """The bytes by which the gradient that a block hands on is larger than the one it is given, as in a U-Net.

    A block's backward pass makes it at its end, but nothing moves between its begin and its end: what has to go for it
    must be gone at the begin. So its earlier parts count these bytes, too. 0 at all other places.
    """
    if place.kind not in ("begin", "held", "part"):
        return 0
    given = layers[min(place.block + 1, len(layers) - 1)].input_bytes
    return max(0, layers[place.block].input_bytes - given)


def _beyond(step: Step, layers: Sequence[Layer], problem: JointProblem) -> dict[int, int]:
    """By op of the forward pass: what it took in the step that stored nothing beyond what that held by the problem.

    What was gone by then in that step may be there in one that stores it, and counts twice.
    """
    first, until = begin_of(step), _until(step, layers, problem)
    changes = [problem.static_bytes - step.beyond_bytes, *[0] * first]
    for one, last in enumerate(until):
        changes[one] += problem.ops[one].output_bytes
        changes[min(last + 1, first)] -= problem.ops[one].output_bytes
    held, absent = list(accumulate(changes)), np.zeros(first, dtype=np.int64)
    found, gone = dict[int, int](), set[Name]()
    at, shares = Places(step, layers), _shares(step, layers, problem)
    for told in step.uses.forward:
        if told.first:
            gone.clear()
            absent[:] = 0
        for name in {name for name in told.gone if name in shares} - gone:
            op, size = shares[name]
            absent[op : until[op] + 1] += size
            gone.add(name)
        t = at.forward(told.where)
        more = told.bytes - held[t] + int(absent[t])
        found[t] = max(found.get(t, more), more)
    return found


def _shares(step: Step, layers: Sequence[Layer], problem: JointProblem) -> dict[Name, tuple[int, int]]:
    """Which op's output a storage is part of, and how many of its bytes it is."""
    found: dict[Name, tuple[int, int]] = {}
    for op, place in enumerate(step.places):
        if place.kind == "unit":
            unit = layers[place.block].units[place.index]
            parts = zip(unit.values, unit.sizes, strict=True)
            found |= {(place.block, node, one): (op, size) for (node, one), size in parts}
        elif (block := given_to(place, len(layers))) is not None:
            names = [name for name in step.uses.given.get(block, ()) if step.uses.stays(name)]
            found |= {name: (op, problem.ops[op].output_bytes if name == names[0] else 0) for name in names}
    return found


def peaks_all_there(footprint: Footprint, layers: Sequence[Layer]) -> Peaks:
    """The measured step's peaks, of each block's backward pass where all that it reads is there when it begins.

    So a plan has it; a step that stores nothing runs some of it again when some else is gone.
    """
    nothing = [BlockPolicy(_lasting_alone(layer), {}, {}) for layer in layers]
    backward = footprint.peaks_alone(nothing, store_everything(len(layers)))
    return Peaks(footprint.peaks.forward, footprint.peaks.loss, backward)


def _lasting_alone(layer: Layer) -> StorePolicy:
    """A block that stores only what no plan runs again."""
    keep = [0] * len(layer.names)
    for unit in (layer.units[index] for index in lasting(layer)):
        for node in unit.nodes:
            keep[node] = max(keep[node], 1 if unit.saved else 2)
    return StorePolicy(tuple(keep), others=False, names=layer.names)
