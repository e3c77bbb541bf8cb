"""Planning times over sizes, and how far Algorithm 1 is from the best plan (§V-F; the gap is ours)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.chameleon.entries import trained_in
from experiments.cluster.planning import (
    EXACT,
    PAPER,
    Answer,
    DrawnFailure,
    answers,
    failed_problem,
    figures_of,
    without_state,
)
from experiments.cluster.settings import read_grid_text
from experiments.reproduction import Cells, Result, Series
from experiments.reproduction.result import Value
from solvers.ir.solution import Limits
from solvers.replan.make import Trained

HOUR_US = 3600 * 10**6
PROVEN = {"optimal", "infeasible"}


def scalability(
    cells: Cells,
    *,
    model: str,
    hardware: str,
    grids: Sequence[str],
    losses: Sequence[int],
    heads: Sequence[bool],
    microbatches: int,
    draws: int,
    gb_per_s: float,
    restart_s: float,
    rate_per_h: float,
    limit_s: float,
) -> Result:
    """Labels `N devices lost K head|plain`, times the longest of `draws` choices of the failed nodes.

    Times are cold, of the problem with its running state, so that mapping and transfers are in it, by the clock and of
    the processor; of the step alone where nothing runs before. Gaps are the largest of the draws.
    """
    cells.total(len(grids) * len(losses) * len(heads))
    found: dict[str, Mapping[str, Any] | None] = {}
    for text in grids:
        grid = read_grid_text(text)
        for head in heads:
            trained = trained_in(cells, model, hardware, gb_per_s, layers=grid.layers, head=head)
            for lost in losses:
                label = f"{grid.nodes} devices lost {lost} {'head' if head else 'plain'}"
                found[label] = cells.get(
                    {"at": label},
                    _planned,
                    trained,
                    text,
                    lost,
                    microbatches,
                    _Draws(draws, restart_s, rate_per_h, limit_s),
                )
    return Result(series=tuple(_series(found)), notes=_notes(found))


@dataclass(frozen=True)
class _Draws:
    """How many choices of the failed nodes; the time of a restart, failures an hour of a node, and the time limit."""

    count: int
    restart_s: float
    rate_per_h: float
    limit_s: float


def _planned(trained: Trained, text: str, lost: int, microbatches: int, draws: _Draws) -> dict[str, Any]:
    """Figures of both planners, with the running state and without."""
    grid = read_grid_text(text)
    problem = trained.problem(depth=grid.depth, data=grid.data, microbatches=microbatches * grid.data)
    whole: dict[str, list[Answer]] = {PAPER: [], EXACT: []}
    alone: dict[str, list[Answer]] = {PAPER: [], EXACT: []}
    for draw in range(draws.count):
        failed = failed_problem(
            problem,
            grid.depth,
            grid.data,
            DrawnFailure(
                lost=lost,
                draw=draw,
                restart_us=round(draws.restart_s * 10**6),
                interval_us=round(HOUR_US / draws.rate_per_h),
                bytes_per_s=trained.bytes_per_s,
            ),
        )
        for one in answers(failed, Limits(time_s=draws.limit_s)):
            whole[one.solver].append(one)
        if draw == 0:  # the step time depends on how many nodes are left, not on which
            for one in answers(without_state(failed), Limits(time_s=draws.limit_s)):
                alone[one.solver].append(one)
    return {
        "whole": {name: figures_of(one) for name, one in whole.items()},
        "alone": {name: figures_of(one) for name, one in alone.items()},
    }


def _series(found: Mapping[str, Mapping[str, Any] | None]) -> list[Series]:
    def curve(name: str, unit: str, where: str, planner: str, key: str, scale: float = 1.0) -> Series:
        points: dict[str, Value] = {}
        for label, cell in found.items():
            value = None if cell is None else cell[where][planner][key]
            points[label] = None if cell is None else "no plan" if value is None else scale * value
        return Series(name=name, unit=unit, points=points)

    names = {"algorithm 1": PAPER, "exact": EXACT}
    series = [curve(f"cold, {name}", "s", "whole", planner, "longest_s") for name, planner in names.items()]
    for name, planner in names.items():
        series.append(curve(f"processor time, {name}", "s", "whole", planner, "processor_s"))
        series.append(curve(f"processor time of the step alone, {name}", "s", "alone", planner, "processor_s"))
    series += [curve(f"again, {name}", "s", "whole", planner, "again_s") for name, planner in names.items()]
    for name, planner in names.items():
        series.append(curve(f"gap of objective, {name}", "%", "whole", planner, "gap", 100.0))
        series.append(curve(f"gap of step time, {name}", "%", "alone", planner, "gap", 100.0))
    return series


def _notes(found: Mapping[str, Mapping[str, Any] | None]) -> tuple[str, ...]:
    """How many answers the exact planner proved, which it did not, and why there is no plan where there is none."""
    exact = {label: cell["whole"][EXACT] for label, cell in found.items() if cell is not None}
    open_gaps = {label: cell["gap"] for label, cell in exact.items() if not PROVEN.issuperset(cell["statuses"])}
    cells = f"{len(exact) - len(open_gaps)} of {len(found)} cells"
    proven = f"The exact planner proves its answer, best or impossible, in {cells}"
    if open_gaps:
        largest = max((gap for gap in open_gaps.values() if gap is not None), default=None)
        room = "without a bound" if largest is None else f"at most {largest:.2g} above its bound"
        proven += f"; the others end {room}: {', '.join(open_gaps)}"
    impossible: dict[str, list[str]] = {}
    for label, cell in exact.items():
        for reason in cell["reasons"]:
            impossible.setdefault(reason, []).append(label)
    return (f"{proven}.", *(f"No plan for {', '.join(labels)}: {reason}." for reason, labels in impossible.items()))
