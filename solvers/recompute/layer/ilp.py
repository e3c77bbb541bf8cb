"""Lynx-HEU's integer programme, corrected (README, I), on the engines: the cross-check of the front."""

import math
from dataclasses import dataclass

import numpy as np

from solvers.engines import Answer, LinearModel, ModelBuilder, solve
from solvers.engines.model import FloatArray
from solvers.ir.recompute import RecomputeLayerProblem
from solvers.ir.solution import Limits, Watch
from solvers.recompute.layer.answers import fixed_bytes
from solvers.recompute.layer.front import Policy
from solvers.recompute.layer.layer import Layer
from solvers.recompute.layer.pareto import IntArray


@dataclass(frozen=True)
class Programme:
    """The model of one policy for all layers; the objective is one layer's time on the critical path."""

    model: LinearModel
    stored: IntArray
    recomputed: IntArray

    def policy(self, x: FloatArray) -> Policy:
        """The policy that a solution tells; `recomputed` has a row for each place, the critical path last."""
        places, ops = np.nonzero(x[self.recomputed] > 0.5)
        pairs = sorted((int(i), int(w)) for i, w in zip(ops, places, strict=True))
        return Policy(tuple(int(i) for i in np.flatnonzero(x[self.stored] > 0.5)), tuple(pairs))


def programme(problem: RecomputeLayerProblem, memory: bool = False, whole: bool = True) -> Programme:
    """The model (I1)–(I5).

    `memory`: minimise the bytes instead, without a budget; `whole` False: its linear relaxation.
    """
    layer = Layer.of(problem)
    count, places = len(problem.ops), len(problem.windows) + 1
    builder = ModelBuilder("recompute-layer")
    stored = builder.columns(count, 0, 1, integer=whole, name="S")
    upper = np.array([[_admitted(layer, i, w) for i in range(count)] for w in range(places)], dtype=np.float64)
    recomputed = builder.columns(count * places, 0, upper.ravel(), integer=whole, name="R").reshape(places, count)
    _cover(builder, problem, stored, recomputed)
    _order(builder, problem, stored, recomputed)
    _fill_windows(builder, problem, recomputed)
    columns, sizes = _memory(problem, layer, stored, recomputed)
    if memory:
        builder.add_cost(columns, sizes)
    else:
        builder.row(columns, sizes, upper=problem.budget_bytes - fixed_bytes(problem), name="memory")
        builder.add_cost(recomputed[-1], [op.time_us for op in problem.ops])
        if layer.late and whole:  # the last of the layers has no backward windows
            for w in layer.open:
                builder.add_cost(recomputed[w], [layer.late_us(i, w) / problem.layers for i in range(count)])
    return Programme(builder.build(), stored, recomputed)


def _admitted(layer: Layer, i: int, w: int) -> bool:
    """(I4) no communication inside windows, nothing in a closed one; also nothing that is longer than the window."""
    return w == layer.critical or layer.fits(i, w)


def _cover(builder: ModelBuilder, problem: RecomputeLayerProblem, stored: IntArray, recomputed: IntArray) -> None:
    """(I1) an op is stored or recomputed at most once, at least once where it is needed."""
    count = len(stored)
    columns = np.concatenate([stored[None], recomputed])
    rows = np.broadcast_to(np.arange(count), columns.shape)
    needed = np.array([op.needed for op in problem.ops], dtype=np.float64)
    builder.rows(rows.ravel(), columns.ravel(), lower=needed, upper=1, name="once", count=count)


def _order(builder: ModelBuilder, problem: RecomputeLayerProblem, stored: IntArray, recomputed: IntArray) -> None:
    """(I2) what is recomputed in w or before has inputs that are stored, or recomputed in w or before."""
    pairs = [(i, j) for i, op in enumerate(problem.ops) for j in set(op.inputs)]
    reader, source = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    for w in range(len(recomputed)):
        mine, before = recomputed[: w + 1, reader], np.concatenate([stored[None], recomputed[: w + 1]])[:, source]
        columns = np.concatenate([mine, before]).ravel()
        values = np.repeat([1.0, -1.0], [mine.size, before.size])
        rows = np.tile(np.arange(len(pairs)), 2 * w + 3)
        builder.rows(rows, columns, values, upper=0, name="order", count=len(pairs))


def _fill_windows(builder: ModelBuilder, problem: RecomputeLayerProblem, recomputed: IntArray) -> None:
    """(I3) a window holds no more time than it has."""
    times = [op.time_us for op in problem.ops]
    for w, window in enumerate(problem.windows):
        builder.row(recomputed[w], times, upper=window.time_us, name="window")


def _memory(
    problem: RecomputeLayerProblem, layer: Layer, stored: IntArray, recomputed: IntArray
) -> tuple[IntArray, IntArray]:
    """(I5) the bytes of every layer's stored and forward outputs, and of the working set."""
    size = np.array([op.output_bytes for op in problem.ops], dtype=np.int64)
    again = np.array([layer.again(i) for i in range(len(size))], dtype=np.int64)
    sizes = [problem.layers * problem.inflight_microbatches * size]
    for w in range(len(recomputed)):
        forward, working = layer.unit(w)
        sizes.append(problem.layers * forward * size + working * again)
    return np.concatenate([stored, recomputed.ravel()]), np.concatenate(sizes)


def solve_programme(
    problem: RecomputeLayerProblem, engine: str, limits: Limits, watch: Watch | None = None
) -> tuple[Answer, Policy | None]:
    """The engine's answer on (I), and its policy."""
    stated = programme(problem)
    answer = solve(stated.model, limits, engine, watch)
    return answer, None if answer.x is None else stated.policy(answer.x)


def mix_bound(problem: RecomputeLayerProblem, engine: str, limits: Limits) -> float | None:
    """A bound on every mix: the layers' number times the relaxed programme's optimum (README, M4).

    The engine's duals are added up anew, so the bound is proven whatever the engine's tolerances.
    """
    model = programme(problem, whole=False).model
    answer = solve(model, limits, "highs" if engine in ("auto", "cpsat") else engine)
    if answer.row_duals is None:
        return None
    proven = model.dual_bound(answer.row_duals)
    return problem.layers * proven if math.isfinite(proven) else None


def least_bytes(problem: RecomputeLayerProblem, engine: str, limits: Limits) -> tuple[int, bool] | None:
    """(the least budget, True) or (a lower bound on it, False); None where the engine knows neither."""
    answer = solve(programme(problem, memory=True).model, limits, engine)
    if answer.bound is None:
        return None
    exact = answer.objective is not None and answer.objective == answer.bound
    return fixed_bytes(problem) + round(answer.bound), exact
