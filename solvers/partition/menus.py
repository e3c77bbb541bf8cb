"""What a stage with n layers might do: policies none of which is better than another in all that the step sees."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from solvers.ir.pipeline import PipelineProblem
from solvers.ir.recompute import RecomputeLayerProblem
from solvers.ir.solution import Limits
from solvers.partition.stages import Groups, StageChoice, choice_of, in_order, layer_problem_of, may_hide
from solvers.recompute.layer import CheckmateLayer, Heu, Layer, TooManyStates, front_of
from solvers.recompute.layer.answers import fixed_bytes, plan_bytes
from solvers.recompute.layer.blend import best_pair
from solvers.recompute.layer.mix import Menu, peak_bounds
from solvers.recompute.layer.policies import keep_all

SINGLES = 24
"""Single policies of a front that are looked at, fastest first."""


@dataclass(frozen=True)
class Menus:
    """The menus of a problem, each made when first asked for; `limits` are of each solver of one stage."""

    problem: PipelineProblem
    limits: Limits
    known: dict[tuple[int, int], tuple[StageChoice, ...]] = field(default_factory=dict)

    def of(self, stage: int, layers: int) -> tuple[StageChoice, ...]:
        """The choices, least recomputation on the critical path first; empty where nothing fits."""
        key = stage, layers
        if key not in self.known:
            asked = layer_problem_of(self.problem, stage, layers)
            groups = dict.fromkeys(in_order(one) for one in _policies(asked, self.limits))
            fitting = [one for one in groups if plan_bytes(asked, one) + seam_bytes(asked, one) <= asked.budget_bytes]
            self.known[key] = self._best(stage, [choice_of(self.problem, stage, asked, one) for one in fitting])
        return self.known[key]

    def _best(self, stage: int, choices: list[StageChoice]) -> tuple[StageChoice, ...]:
        """Those that no other one beats in times on the lane and in what it may hide."""
        rows = [
            (
                one.lane_us,
                one.cool_us,
                one.ahead_us,
                not may_hide(self.problem, stage, one, "cooldown"),
                not may_hide(self.problem, stage, one, "all"),
            )
            for one in choices
        ]
        order = sorted(range(len(rows)), key=rows.__getitem__)
        kept: list[int] = []
        for i in order:
            if not any(all(a <= b for a, b in zip(rows[j], rows[i], strict=True)) for j in kept):
                kept.append(i)
        return tuple(choices[i] for i in kept)


def seam_bytes(asked: RecomputeLayerProblem, groups: Groups) -> int:
    """What a schedule may hold beyond formats.md 5.3, where a layer of one group goes back before one of another.

    5.3 counts 2·h + c of the worst group. Where groups meet, it is the upper layer's h + c and the lower one's h, less
    what the layers above have given back by then.
    """
    critical = len(asked.windows)
    size = [op.output_bytes for op in asked.ops]
    hidden, lane, given = [], [], []
    for group in groups:
        phases = [(size[i], "critical" if w == critical else asked.windows[w].phase) for i, w in group.recomputed]
        hidden.append(sum(amount for amount, phase in phases if phase == "backward"))
        lane.append(sum(amount for amount, phase in phases if phase == "critical"))
        given.append(asked.layer_input_bytes + sum(size[i] for i in group.stored))
    counted = max(2 * h + c for h, c in zip(hidden, lane, strict=True))
    back = worst = 0
    for at in range(len(groups) - 1, 0, -1):
        back += (groups[at].layers - 1) * given[at]
        worst = max(worst, hidden[at] + lane[at] + hidden[at - 1] - back)
        back += given[at]
    return max(0, worst - counted)


def _policies(asked: RecomputeLayerProblem, limits: Limits) -> Iterator[Groups]:
    """Everything stored; one policy, mixes of two, with and without forward windows; the best mix without windows."""
    everything: Groups = (keep_all(Layer.of(asked)).group(asked.layers),)
    yield everything
    if plan_bytes(asked, everything) <= asked.budget_bytes:
        return
    closed = msgspec.structs.replace(asked, last_stage=True)
    for problem in (asked,) if asked.last_stage else (asked, closed):
        yield from _of_front(problem)
    plan = CheckmateLayer().solve(asked, limits).plan
    if plan is not None:
        yield plan.groups


def _of_front(asked: RecomputeLayerProblem) -> Iterator[Groups]:
    """One policy for all layers, the first ones of the front that fit; the best mix of two where that is faster."""
    layers, flying = asked.layers, asked.inflight_microbatches
    try:
        front = front_of(Layer.of(asked), flying)
    except TooManyStates:
        plan = Heu().solve(asked, Limits()).plan
        if plan is not None:
            yield plan.groups
        return
    room = asked.budget_bytes - fixed_bytes(asked)
    fits = (front.memory(layers, flying) <= room).nonzero()[0].tolist()
    for number in fits[:SINGLES]:
        yield (front.policy(number).group(layers),)
    if fits and front.time_us[fits[0]]:
        best = layers * int(front.time_us[fits[0]])
        menu = Menu(front.time_us, front.share(flying), front.working_bytes, layers, room)
        pair = best_pair(menu, peak_bounds(menu, best), fits[0], lambda: False)
        yield tuple(front.policy(number).group(count) for number, count in pair.mix)
