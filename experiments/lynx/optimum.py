"""HEU and Checkmate against OPT on whole graphs (Figure 14, §7.4)."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from experiments.lynx.single_policy import LayeredGraph, best_single_policy
from experiments.reproduction import Cells, Result, Series
from experiments.reproduction.result import Value
from experiments.reproduction.sources import ROOT
from solvers.check import check_plan
from solvers.ir.codec import plan_file, read_problem
from solvers.ir.errors import BayplanError, InvalidInput
from solvers.ir.recompute import RecomputeGraphPlan, RecomputeGraphProblem
from solvers.ir.solution import Limits, Solution, Solver, Status
from solvers.recompute.graph import Checkmate
from solvers.recompute.graph.opt.solver import Opt
from solvers.recompute.layer import Heu, forget_fronts

Read = Callable[[Mapping[str, Any]], float]
GraphSolver = Solver[RecomputeGraphProblem, Solution[RecomputeGraphPlan]]
SOLVERS: dict[str, GraphSolver] = {"opt": Opt(), "checkmate": Checkmate()}
PAIRS = {"heu of opt": ("opt", "heu"), "checkmate of opt": ("opt", "checkmate"), "opt of opt": ("opt", "opt")}


def figure_14(cells: Cells, *, instances: str, time_limit_s: float, checkmate_limit_s: float, threads: int) -> Result:
    """Search times, throughputs over OPT's, and OPT's distance to its bound, by instance."""
    paths = sorted(ROOT.glob(instances))
    if not paths:
        raise InvalidInput(f"no file matches {instances}: ship the instances, or name others")
    cells.total(3 * len(paths))
    limits = {"opt": time_limit_s, "checkmate": checkmate_limit_s}
    found = {path.stem: _solved(cells, path, limits, threads) for path in paths}
    return Result(series=tuple(_series(found)), notes=tuple(_notes(found)))


def _solved(cells: Cells, path: Path, limits: Mapping[str, float], threads: int) -> dict[str, Mapping[str, Any] | None]:
    answers = {
        name: cells.get({"instance": path.stem, "solver": name}, solve_graph, path, name, limit, threads, cells.seed)
        for name, limit in limits.items()
    }
    return {**answers, "heu": cells.get({"instance": path.stem, "solver": "heu"}, solve_heu, path)}


def solve_graph(path: Path, name: str, time_limit_s: float, threads: int, seed: int) -> dict[str, Any]:
    """A solver's answer on an instance; a plan that the judge refuses is an error."""
    problem, sha256 = _problem(path)
    began = time.perf_counter()
    solution = SOLVERS[name].solve(problem, Limits(time_s=time_limit_s, threads=threads, seed=seed))
    spent = time.perf_counter() - began
    verdict = check_plan(problem, plan_file(solution, problem.KIND, sha256), sha256)
    if solution.plan is not None and not verdict.clean:
        raise BayplanError(f"the plan of {name} for {path.stem} does not pass its check: {verdict.violations[0]}")
    return {
        "status": solution.status.value,
        "objective_us": solution.objective,
        "bound_us": solution.bound,
        "base_us": solution.base,
        "gap": solution.gap,
        "overhead_gap": solution.overhead_gap,
        "search_s": spent,
        "certified": solution.certificate is not None,
        "reason": solution.reason,
    }


def solve_heu(path: Path) -> dict[str, Any]:
    """HEU's search for one layer, nothing remembered, and its best policy as a plan of the whole graph, judged."""
    problem, _ = _problem(path)
    graph = LayeredGraph.of(problem)
    layer = graph.layer_problem()
    forget_fronts()
    began = time.perf_counter()
    own = Heu().solve(layer, Limits())
    spent = time.perf_counter() - began
    best = best_single_policy(graph)
    if best is None:
        return {"objective_us": None, "search_s": spent, "own_critical_us": own.objective}
    plan = best.plan(graph.given)
    solution = Solution(status=Status.FEASIBLE, plan=plan, objective=best.replayed.objective_us, solver="heu")
    verdict = check_plan(problem, plan_file(solution, problem.KIND, None))
    if not verdict.clean:
        raise BayplanError(f"HEU's plan for {path.stem} does not pass its check: {verdict.violations[0]}")
    return {"objective_us": best.replayed.objective_us, "search_s": spent, "own_critical_us": own.objective}


def _problem(path: Path) -> tuple[RecomputeGraphProblem, str]:
    problem, sha256 = read_problem(path)
    if not isinstance(problem, RecomputeGraphProblem):
        raise InvalidInput(f"{path} holds a {problem.KIND} problem: give a recompute-graph problem")
    return problem, sha256


def _series(found: Mapping[str, Mapping[str, Mapping[str, Any] | None]]) -> list[Series]:
    series = [
        Series(
            name=f"{name} search time",
            unit="s",
            points={
                label: _value(answers[name], lambda cell: float(cell["search_s"])) for label, answers in found.items()
            },
        )
        for name in ("opt", "checkmate", "heu")
    ]
    for title, (one, other) in PAIRS.items():
        points = {label: _percent(answers[one], "objective_us", answers[other]) for label, answers in found.items()}
        series.append(Series(name=title, unit="%", points=points))
    bound = {label: _percent(answers["opt"], "bound_us", answers["heu"]) for label, answers in found.items()}
    series.append(Series(name="heu of bound", unit="%", points=bound))
    for gap in ("gap", "overhead_gap"):
        points = {label: _gap(answers["opt"], gap) for label, answers in found.items()}
        series.append(Series(name=f"opt {gap.replace('_', ' ')}", unit="%", points=points))
    overhead = {label: _overhead(answers["opt"]) for label, answers in found.items()}
    return [*series, Series(name="opt over unlimited", unit="%", points=overhead)]


def _value(cell: Mapping[str, Any] | None, read: Read) -> Value:
    return None if cell is None else read(cell)


def _percent(first: Mapping[str, Any] | None, key: str, second: Mapping[str, Any] | None) -> Value:
    """The second plan's throughput over the first one's (or its bound's): times, so the other way round."""
    if first is None or second is None:
        return None
    above, below = first[key], second["objective_us"]
    return "no plan" if above is None or below is None else float(100 * above / below)


def _gap(cell: Mapping[str, Any] | None, key: str) -> Value:
    if cell is None:
        return None
    return "no bound" if cell[key] is None else 100 * float(cell[key])


def _overhead(cell: Mapping[str, Any] | None) -> Value:
    """What OPT's plan takes longer than one with unlimited memory."""
    if cell is None:
        return None
    if cell["objective_us"] is None or not cell["base_us"]:
        return "no plan"
    return float(100 * (cell["objective_us"] / cell["base_us"] - 1))


def _notes(found: Mapping[str, Mapping[str, Mapping[str, Any] | None]]) -> list[str]:
    told = []
    for label, answers in found.items():
        opt = answers["opt"]
        if opt is not None:
            what = f"{opt['objective_us']} µs, bound {opt['bound_us']}, unlimited {opt['base_us']}"
            certified = "with" if opt["certified"] else "without"
            told.append(f"{label}: opt {opt['status']} {what}, {certified} a certificate{_because(opt)}.")
    return told


def _because(answer: Mapping[str, Any]) -> str:
    return f"; {answer['reason']}" if answer["reason"] else ""
