"""How much throughput is left after a recovery (Figure 9, §V-B), by the planner and by what a step is made of."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from experiments.reproduction import Cells, Result, Series
from experiments.reproduction.result import Value
from solvers.ir.replan import ReplanProblem
from solvers.ir.solution import Limits
from solvers.replan import Algorithm1, ExactReplan
from solvers.replan.estimate.objective import step_us
from solvers.replan.estimate.paper import f7_us
from solvers.replan.make import Trained, even_layers

PLANNERS = {"algorithm 1": Algorithm1, "exact": ExactReplan}


def retention(
    cells: Cells,
    *,
    model: str,
    cases: Mapping[str, Mapping[str, Any]],
    batches: Sequence[int],
    gb_per_s: Sequence[float],
) -> Result:
    """Labels `CASE batch B` for a bare step, `CASE batch B at R GB/s` for a whole one, 100 % being before the failure.

    A case has `hardware`, `depth`, `data`, `tensor`, the nodes `left`, and the `paper`'s percentage.
    """
    cells.total(len(cases) * len(batches) * (1 + len(gb_per_s)))
    shape = cells.shape(model)
    bare: dict[str, dict[str, Any] | None] = {}
    whole: dict[str, dict[str, Any] | None] = {}
    for name, case in cases.items():
        for batch in batches:
            for rate in (None, *gb_per_s):
                trained = Trained(
                    shape=shape,
                    machine=cells.hardware(case["hardware"]),
                    bytes_per_s=round((rate or 1) * 10**9),
                    tensor=case["tensor"],
                )
                label = f"{name} batch {batch}" if rate is None else f"{name} batch {batch} at {rate:g} GB/s"
                found = cells.get({"case": label}, _after, trained, case, batch, rate is None)
                (bare if rate is None else whole)[label] = found
    series = (*_series("", bare), *_series("whole, ", whole), *_needed(cases, bare), *_farthest(cases, whole))
    return Result(series=series, notes=_notes(bare))


def bare_problem(problem: ReplanProblem) -> ReplanProblem:
    """The same with uniform layers that alone take time; memory unchanged."""
    return msgspec.structs.replace(
        problem, first_extra_us=(0, 0), last_extra_us=(0, 0), p2p_us=0, sync_us=0, layer_sync_us=0
    )


def _after(trained: Trained, case: Mapping[str, Any], batch: int, is_bare: bool) -> dict[str, Any]:
    """Step times in µs before and after, and the pipelines after."""
    depth, data, left = case["depth"], case["data"], case["left"]
    problem = trained.problem(depth=depth, data=data, microbatches=batch)
    problem = bare_problem(problem) if is_bare else problem
    layers = even_layers(problem.layers, depth)
    found: dict[str, Any] = {"before_us": step_us(problem, [(layers, batch // data)] * data)}
    later = msgspec.structs.replace(problem, nodes=left, max_depth=min(problem.max_depth, left))
    for name, planner in PLANNERS.items():
        solution = planner().solve(later, Limits())
        pipelines = () if solution.plan is None else solution.plan.pipelines
        found[name] = {
            "step_us": solution.objective,
            "bound_us": solution.bound,
            "pipelines": [[list(one.layers), one.microbatches] for one in pipelines],
        }
    failed = [1] + [0] * (depth - 1)
    found["rerouting"] = {"step_us": float(f7_us(problem, layers, batch // data, failed, data))}
    return found


def _series(prefix: str, found: Mapping[str, Mapping[str, Any] | None]) -> list[Series]:
    names = (*PLANNERS, *(["rerouting"] if not prefix else []))
    return [
        Series(name=f"{prefix}{name}", unit="%", points={label: _kept(cell, name) for label, cell in found.items()})
        for name in names
    ]


def _kept(cell: Mapping[str, Any] | None, name: str) -> Value:
    if cell is None:
        return None
    after = cell[name]["step_us"]
    return "no plan" if after is None else 100 * cell["before_us"] / after


def _needed(cases: Mapping[str, Mapping[str, Any]], bare: Mapping[str, Mapping[str, Any] | None]) -> list[Series]:
    """What of a step would have to be the same before and after for the paper's percentage; of all nodes at work."""
    needed: dict[str, Value] = {}
    share: dict[str, Value] = {}
    for label, cell in bare.items():
        case = cases[label.partition(" batch ")[0]]
        kept, nodes = case["paper"] / 100, case["depth"] * case["data"]
        if cell is None or cell["exact"]["step_us"] is None:
            needed[label] = share[label] = None
            continue
        before, after = cell["before_us"], cell["exact"]["step_us"]
        needed[label] = 100 * max(0.0, (kept * after - before) / (1 - kept)) / before
        share[label] = 100 * (before / after) * nodes / case["left"]
    return [
        Series(name="fixed part that the paper's value needs, of the bare step", unit="%", points=needed),
        Series(name="exact, of the nodes left", unit="%", points=share),
    ]


def _farthest(cases: Mapping[str, Mapping[str, Any]], whole: Mapping[str, Mapping[str, Any] | None]) -> list[Series]:
    """For one batch and one rate: the largest deviation of any case from the paper's value, relative to that value."""
    found: dict[str, dict[str, list[float]]] = {name: {} for name in PLANNERS}
    for label, cell in whole.items():
        case, _, setting = label.partition(" batch ")
        for name in PLANNERS:
            kept = _kept(cell, name)
            if isinstance(kept, float):
                found[name].setdefault(f"batch {setting}", []).append(100 * abs(kept / cases[case]["paper"] - 1))
    return [
        Series(
            name=f"farthest from the paper of all cases, {name}",
            unit="%",
            points={setting: max(each) for setting, each in settings.items() if len(each) == len(cases)},
        )
        for name, settings in found.items()
    ]


def _notes(bare: Mapping[str, Mapping[str, Any] | None]) -> tuple[str, ...]:
    return tuple(
        f"{label}: algorithm 1 {_text(cell['algorithm 1'])}, exact {_text(cell['exact'])}."
        for label, cell in bare.items()
        if cell is not None
    )


def _text(found: Mapping[str, Any]) -> str:
    return " + ".join(f"{len(layers)} x {count}" for layers, count in found["pipelines"]) or "no plan"
