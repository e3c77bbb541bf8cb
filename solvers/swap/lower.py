"""From a swap plan to a schedule: when transfers are issued, where blocks are released, and who waits for whom."""

from solvers.ir.errors import InvalidProblem
from solvers.ir.schedule import Action, Do, Schedule
from solvers.ir.swap import SwapPlan, SwapProblem
from solvers.swap.evaluate import Timeline, choices_of, evaluate, instance

LANES = ("0.compute", "0.out", "0.in")
_NEVER = -1


def lower(problem: SwapProblem, plan: SwapPlan) -> Schedule:
    """The schedule whose timeline is exactly the plan's (README, Lowering); raises `InvalidProblem` on an invalid plan.

    A block is released before the first op at which its swap-out has ended, so no release ever waits longer than the
    plan does; a tensor that nobody needs gone is released before its swap-in. `after` holds only waits that lane order
    and other waits do not already imply, so that each one is needed.
    """
    timeline = evaluate(instance(problem), choices_of(problem, plan))
    if timeline is None:
        raise InvalidProblem(
            "the plan leaves an op without enough memory: check it with `bayplan check` before lowering"
        )
    return _Lowering(problem, plan, timeline).schedule()


class _Lowering:
    """One pass over the ops; `clocks[action]` says how many actions of each lane surely ended before it starts."""

    def __init__(self, problem: SwapProblem, plan: SwapPlan, timeline: Timeline) -> None:
        self.problem, self.plan = problem, plan
        tensors = {tensor.id: tensor for tensor in problem.tensors}
        self.tensors = [tensors[swap.tensor] for swap in plan.swaps]
        self.released = timeline.released
        self.actions: list[Action] = []
        self.clocks: dict[int, dict[str, int]] = {}
        self.latest: dict[str, int] = {}
        self.counts = dict.fromkeys(LANES, 0)
        self.place: dict[int, tuple[str, int]] = {}

    def schedule(self) -> Schedule:
        """Walk the ops in order: releases, swap-ins, the op itself, swap-outs."""
        tensors, swaps = self.tensors, self.plan.swaps
        releases = _by_op(self.released)
        issues = _by_op([swap.swap_in_at for swap in swaps])
        uses = _by_op([tensor.first_backward_use for tensor in tensors])
        leaves = _by_op([tensor.last_forward_use for tensor in tensors])
        outs: dict[int, int] = {}
        ins: dict[int, int] = {}
        for op in range(len(self.problem.ops)):
            for number in sorted(releases.get(op, ()), key=outs.__getitem__, reverse=True):
                self._add("0.compute", "release", op, number, [outs[number]])
            before = self.latest.get("0.compute", _NEVER)
            for number in issues.get(op, ()):
                ins[number] = self._add("0.in", "swap_in", op, number, [before])
            compute = self._add("0.compute", "compute", op, None, [ins[number] for number in uses.get(op, ())])
            for number in leaves.get(op, ()):
                outs[number] = self._add("0.out", "swap_out", op, number, [compute])
        return Schedule(lanes=LANES, actions=tuple(self.actions))

    def _add(self, lane: str, do: Do, op: int, number: int | None, waits: list[int]) -> int:
        name = len(self.actions)
        clock = dict(self.clocks[self.latest[lane]]) if lane in self.latest else dict.fromkeys(LANES, 0)
        after = []
        for wait in sorted(waits, key=lambda wait: self.place.get(wait, ("", 0))[1], reverse=True):
            where, position = self.place.get(wait, (lane, 0))
            if where == lane or clock[where] >= position:
                continue
            after.append(wait)
            for key, value in self.clocks[wait].items():
                clock[key] = max(clock[key], value)
        self.counts[lane] += 1
        clock[lane] = self.counts[lane]
        self.clocks[name], self.place[name], self.latest[lane] = clock, (lane, self.counts[lane]), name
        tensor = None if number is None else self.tensors[number]
        data, size = ((), 0) if tensor is None else ((tensor.id,), tensor.bytes)
        self.actions.append(Action(id=name, lane=lane, do=do, op=op, data=data, bytes=size, after=tuple(sorted(after))))
        return name


def _by_op(ops: list[int]) -> dict[int, list[int]]:
    """The places of a list by the op that they hold, in list order."""
    places: dict[int, list[int]] = {}
    for place, op in enumerate(ops):
        places.setdefault(op, []).append(place)
    return places
