"""Operators with several results in plans of whole steps, in which each result is an op that stays and goes by itself.

A normalization's output, which later operators read, and its statistics, which autograd saves, come from one node of a
tape: whenever it runs again, both are made. The plan has room for those that it asked for, so the others go at once.
"""

from collections.abc import Collection, Sequence

from runtime.recompute.graph import Step
from runtime.recompute.layer import Layer, Value
from runtime.recompute.work import Deed
from solvers.ir.schedule import Action


def other_results(step: Step, layers: Sequence[Layer]) -> dict[int, set[int]]:
    """By op those that stand for other results of the same nodes, where there are any."""
    ops: dict[tuple[int, tuple[int, ...]], set[int]] = {}
    for op, place in enumerate(step.places):
        if place.kind == "unit":
            ops.setdefault((place.block, layers[place.block].units[place.index].nodes), set()).add(op)
    return {op: parts - {op} for parts in ops.values() if len(parts) > 1 for op in parts}


def units_deed(step: Step, layers: Sequence[Layer], does: str, ops: Sequence[int], others: Collection[int]) -> Deed:
    """What is done to units of one block: their nodes, each once, in the tape's order, but not to results of `others`.

    Of nodes that write in place what one of these made, those run that the asked results need.
    """
    block = step.places[ops[0]].block
    units, nodes, but = layers[block].units, set[int](), set[Value]()
    left = [units[step.places[op].index] for op in {*others} - {*ops}]
    for unit in (units[step.places[op].index] for op in ops):
        beside = [value for one in left if one.nodes == unit.nodes for value in one.values]
        last = max(node for node, _ in unit.values) if beside else unit.nodes[-1]
        nodes |= {node for node in unit.nodes if node <= last}
        but |= {value for value in beside if value[0] <= last}
        but |= {(last, 0)} if last < unit.nodes[-1] else set()
    replays = does in ("recompute", "replay")
    return Deed("replay" if replays else "drop", block, tuple(sorted(nodes)), tuple(sorted(but)))


def results_together(step: Step, layers: Sequence[Layer], actions: Sequence[Action]) -> list[Action]:
    """The actions with what runs again for one result run where another result of the same nodes runs them again.

    As far as that is before anything reads the first one: statistics of a normalization, which only the backward pass
    reads, come with its output, so that the operator runs once, and has its result no earlier than the plan.
    """
    ops, parts = step.graph.ops, other_results(step, layers)
    made = {op.outputs[0]: index for index, op in enumerate(ops)}
    touched, ran, later = dict[int, int](), dict[int, int](), dict[int, list[Action]]()
    for at in reversed(range(len(actions))):
        action = actions[at]
        assert action.op is not None
        if action.do in ("compute", "recompute", "collective_start"):
            touched |= {made[one]: at for one in ops[action.op].inputs}
        if action.do == "recompute" and action.op in parts:
            again = min(ran.get(other, len(actions)) for other in parts[action.op])
            if again < touched.get(action.op, -1):
                later.setdefault(again, []).append(action)
                continue
            ran[action.op] = at
        touched[action.op] = at
    moved = {id(action) for there in later.values() for action in there}
    left = ((later.get(at, []), action) for at, action in enumerate(actions) if id(action) not in moved)
    return [one for there, action in left for one in (*there, action)]
