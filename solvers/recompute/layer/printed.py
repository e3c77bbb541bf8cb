"""Lynx-HEU as the paper prints it, (2)–(9), to show what the corrections change (README, P)."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from solvers.engines import LinearModel, ModelBuilder, solve
from solvers.ir.recompute import RecomputeLayerProblem
from solvers.ir.solution import Limits
from solvers.recompute.layer.answers import plan_bytes
from solvers.recompute.layer.front import Policy
from solvers.recompute.layer.heu import Heu
from solvers.recompute.layer.layer import Layer
from solvers.recompute.layer.pareto import IntArray


@dataclass(frozen=True)
class PrintedRow:
    """One instance under both models; times are those of one layer on the critical path, in microseconds.

    `violations` counts pairs (op, input) that the printed optimum recomputes in the wrong order: the input later, or
    never. `unneeded` counts ops that it recomputes or stores though no backward op depends on them. `over_bytes` is by
    how much the printed plan exceeds the budget under the corrected memory; the layer's output, stored by S_n = 1, is
    the next layer's input and counts once. None: no plan.
    """

    name: str
    printed_us: int | None
    corrected_us: int | None
    violations: int | None
    unneeded: int | None
    over_bytes: int | None

    @property
    def error(self) -> float | None:
        """(printed − corrected) / corrected: below 0 too optimistic, above 0 too pessimistic."""
        if self.printed_us is None or not self.corrected_us:
            return None
        return (self.printed_us - self.corrected_us) / self.corrected_us


def compare_printed(
    problems: Iterable[RecomputeLayerProblem], engine: str = "auto", limits: Limits | None = None
) -> list[PrintedRow]:
    """A row for each problem: the printed model's optimum on an engine, the corrected one from the front."""
    return [_compare(problem, engine, limits or Limits()) for problem in problems]


def _compare(problem: RecomputeLayerProblem, engine: str, limits: Limits) -> PrintedRow:
    corrected = Heu().solve(problem, limits).objective
    corrected_us = None if corrected is None else corrected // problem.layers
    policy = solve_printed(problem, engine, limits)
    if policy is None:
        return PrintedRow(problem.name, None, corrected_us, None, None, None)
    layer, output = Layer.of(problem), len(problem.ops) - 1
    stored = tuple(i for i in policy.stored if i != output or problem.ops[i].needed)
    touched = [*stored, *(i for i, _ in policy.recomputed)]
    needed = plan_bytes(problem, [Policy(stored, policy.recomputed).group(problem.layers)])
    return PrintedRow(
        name=problem.name,
        printed_us=sum(problem.ops[i].time_us for i, w in policy.recomputed if w == layer.critical),
        corrected_us=corrected_us,
        violations=dependency_violations(problem, policy),
        unneeded=len(set(touched) - set(layer.useful)),
        over_bytes=max(0, needed - problem.budget_bytes),
    )


def dependency_violations(problem: RecomputeLayerProblem, policy: Policy) -> int:
    """Pairs of a recomputed op and an input of it that is neither stored nor recomputed in time."""
    when = {**dict.fromkeys(policy.stored, -1), **dict(policy.recomputed)}
    never = len(problem.windows) + 1
    return sum(when.get(j, never) > w for i, w in policy.recomputed for j in set(problem.ops[i].inputs))


def solve_printed(problem: RecomputeLayerProblem, engine: str, limits: Limits) -> Policy | None:
    """The printed model's optimal policy; None where it has none within the limits."""
    model, stored, hidden = printed(problem)
    answer = solve(model, limits, engine)
    if answer.x is None:
        return None
    places, ops = np.nonzero(answer.x[hidden] > 0.5)
    pairs = sorted((int(i), int(w)) for i, w in zip(ops, places, strict=True))
    return Policy(tuple(int(i) for i in np.flatnonzero(answer.x[stored] > 0.5)), tuple(pairs))


def printed(problem: RecomputeLayerProblem) -> tuple[LinearModel, IntArray, IntArray]:
    """The model, its S, and its products (1 − S)·R with a row for each phase, the critical path last.

    Phases are the problem's windows (four in the paper) and the critical path. The last op's output is always stored
    (S_n = 1): it is the next layer's input, so inputs are not counted again. The last stage has no forward phases.
    """
    layer, count = Layer.of(problem), len(problem.ops)
    builder = ModelBuilder("Lynx-HEU as printed")
    stored = builder.columns(count, [*[0] * (count - 1), 1], 1, integer=True, name="S")
    shape = (len(problem.windows) + 1, count)
    open_ = [[w == layer.critical or (w in layer.open and not op.comm) for op in problem.ops] for w in range(shape[0])]
    again = builder.columns(shape[0] * count, 0, np.ravel(open_), integer=True, name="R").reshape(shape)  # (6)
    hidden = builder.binaries(again.size, name="(1-S)R").reshape(shape)
    builder.add_cost(hidden[-1], [op.time_us for op in problem.ops])  # (2)
    for i, op in enumerate(problem.ops):
        builder.row(again[:, i], lower=1, upper=1, name="(3)")
        for w in range(shape[0]):
            _product(builder, int(stored[i]), int(again[w, i]), int(hidden[w, i]))
            for j in set(op.inputs):
                builder.row([again[w, i], *again[:, j], stored[j]], [1, *[-1] * shape[0], -1], upper=0, name="(4)")
    for w, window in enumerate(problem.windows):
        builder.row(hidden[w], [op.time_us for op in problem.ops], upper=window.time_us, name="(5)")
    _memory(builder, problem, stored, hidden)
    return builder.build(), stored, hidden


def _product(builder: ModelBuilder, stored: int, again: int, product: int) -> None:
    """The product (1 − S)·R of two binaries, exactly."""
    builder.row([product, again], [1, -1], upper=0, name="product")
    builder.row([product, stored], [1, 1], upper=1, name="product")
    builder.row([product, again, stored], [1, -1, 1], lower=0, name="product")


def _memory(builder: ModelBuilder, problem: RecomputeLayerProblem, stored: IntArray, hidden: IntArray) -> None:
    """(7)–(9) stored outputs for every microbatch, forward recomputation for one."""
    size = np.array([op.output_bytes for op in problem.ops], dtype=np.int64)
    forward = [w for w, window in enumerate(problem.windows) if window.phase == "forward"]
    columns = [stored, *(hidden[w] for w in forward)]
    values = [problem.layers * problem.inflight_microbatches * size, *(problem.layers * size for _ in forward)]
    limit = problem.budget_bytes - problem.static_bytes
    builder.row(np.concatenate(columns), np.concatenate(values), upper=limit, name="(7)")
