"""`bayplan solve`: a problem file in, the answer on the screen and the plan in a file."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from experiments.commands.completion import names_or_files
from experiments.commands.interrupts import Interrupts
from experiments.commands.parameters import read_parameter
from experiments.commands.progress import Progress
from experiments.commands.show import print_figures, show_seconds, show_share, show_us
from experiments.commands.streams import (
    destination,
    is_stream,
    print_json,
    read_problem_at,
    require_one_stdout,
    write_at,
)
from solvers.ir.amounts import show_bytes
from solvers.ir.codec import plan_file, plan_to_raw
from solvers.ir.errors import InvalidInput
from solvers.ir.names import unknown
from solvers.ir.problem import Problem
from solvers.ir.solution import Limits, Solution
from solvers.planner import AnySolver, build_solver, require_engine, solver_entry, solver_names

HELP = """Solve PROBLEM and print status, objective, bound, gap, overhead gap and time.

Objectives are in microseconds. The gap is (objective - bound) / objective; the overhead gap is
(objective - bound) / (objective - base), base being the objective with unlimited memory. Ctrl-C keeps the best plan so
far. Exit code 1: no plan (infeasible, or none within the limits); --out is written nevertheless.

PROBLEM - reads stdin; --out - prints the plan and nothing else."""


@click.command("solve", help=HELP)
@click.argument("problem", type=click.Path(path_type=Path))
@click.option(
    "--solver",
    "name",
    metavar="NAME",
    help="A name of `bayplan solvers`, of the problem's kind.",
    shell_complete=names_or_files(solver_names),
)
@click.option("--set", "settings", multiple=True, metavar="K=V", help="Set a parameter of the solver; repeatable.")
@click.option(
    "--time-limit", type=float, metavar="S", help="Seconds of wall clock.  [default: 60; none where --work is given]"
)
@click.option("--work", type=float, metavar="W", help="Deterministic work limit: same seed and work, same plan.")
@click.option("--gap", type=float, metavar="G", default=0.0, show_default=True, help="Stop at this relative gap.")
@click.option("--threads", type=int, metavar="N", default=1, show_default=True, help="Threads of the engine.")
@click.option("--seed", type=int, metavar="N", default=0, show_default=True, help="Seed of all that is random.")
@click.option("--engine", metavar="E", help="highs, cpsat, gurobi or auto (the default of solvers that use one).")
@click.option("--out", type=click.Path(path_type=Path), metavar="PLAN.json", help="Where to write the plan.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object in place of figures.")
def command(problem: Path, name: str | None, out: Path | None, as_json: bool, **how: Any) -> int:
    """See HELP."""
    require_one_stdout(out, as_json)
    limits = _limits(how["time_limit"], how["work"], how["gap"], how["threads"], how["seed"])
    asked, sha256 = read_problem_at(problem)
    name = _require_solver(name, asked.KIND)
    solver = _build(name, how["settings"], how["engine"])
    place = None if out is None else destination(out, "--out", inputs=(problem,))
    solution, stopped = _solve(solver, asked, limits, name)
    if stopped:
        solution = msgspec.structs.replace(solution, reason=_with_stop(solution, stopped))
    if place is not None:
        write_at(place, plan_to_raw(plan_file(solution, asked.KIND, sha256)))
    if as_json:
        print_json({**_answer(solution, asked), "out": None if out is None else str(out)})
    elif not is_stream(out):
        _print(solution, asked.name, out)
    if stopped:
        _say_stopped(solution, stopped, out)
    return 0 if solution.plan is not None else 1


def _answer(solution: Solution[Any], problem: Problem) -> dict[str, Any]:
    """The answer as JSON: the fields of a plan file but for its decision, and the gaps."""
    file = msgspec.to_builtins(plan_file(solution, problem.KIND, None))
    told = {name: value for name, value in file.items() if name not in ("problem_sha256", "certificate", "decision")}
    return {"problem": problem.name, **told, "gap": solution.gap, "overhead_gap": solution.overhead_gap}


def _limits(time_limit: float | None, work: float | None, gap: float, threads: int, seed: int) -> Limits:
    """The limits; a fault names the flag."""
    for flag, value in (("--time-limit", time_limit), ("--work", work), ("--gap", gap)):
        if value is not None and not math.isfinite(value):
            raise InvalidInput(f"{flag} is {value}: give a finite number")
    try:
        asked = {} if time_limit is None else {"time_s": time_limit}
        return Limits(**asked, work=work, gap=gap, threads=threads, seed=seed)
    except InvalidInput as error:
        field, _, rest = str(error).partition(" ")
        raise InvalidInput(f"{'--time-limit' if field == 'time_s' else f'--{field}'} {rest}") from error


def _require_solver(name: str | None, kind: str) -> str:
    fitting = solver_names(kind)
    if not fitting:
        raise InvalidInput(f"there is no solver for {kind} problems: `bayplan solvers` lists the kinds that have one")
    if name is None:
        raise InvalidInput(f"no solver is given: choose --solver {' or '.join(fitting)}")
    if name not in solver_names():
        raise unknown("solver", name, fitting)
    if solver_entry(name).kind != kind:
        raise InvalidInput(
            f"{name} solves {solver_entry(name).kind} problems, but this is a {kind} one: choose {' or '.join(fitting)}"
        )
    return name


def _build(name: str, settings: Sequence[str], engine: str | None) -> AnySolver:
    """The solver with its parameters; `--engine E` is the parameter `engine`."""
    pairs = [(text.partition("=")[0].strip(), text.partition("=")[2].strip()) for text in settings]
    for text, (key, _) in zip(settings, pairs, strict=True):
        if "=" not in text or not key:
            raise InvalidInput(f"--set is {text!r}: write --set parameter=value")
    if engine is not None:
        require_engine(name, engine)
        pairs.append(("engine", engine))
    keys = [key for key, _ in pairs]
    for key in keys:
        if keys.count(key) > 1:
            raise InvalidInput(f"{key} is set {keys.count(key)} times: set it once")
    parameters = {key: read_parameter(name, key, text) for key, text in pairs}
    if "engine" in parameters:
        require_engine(name, str(parameters["engine"]))
    return build_solver(name, parameters)


def _solve(solver: AnySolver, problem: Problem, limits: Limits, name: str) -> tuple[Solution[Any], str | None]:
    """The answer, and what asked the solver to stop early (None: nothing did)."""
    with Interrupts() as interrupts, Progress(name, interrupts) as progress:
        solution = solver.solve(problem, limits, progress)
    return solution, interrupts.asked_by


def _with_stop(solution: Solution[Any], stopped: str) -> str:
    """The reason, and what ended the search; that alone where there is no plan, as more time was not given."""
    if solution.plan is None:
        return f"stopped by {stopped} before there was a plan"
    said = f"stopped by {stopped}: the best so far"
    return said if solution.reason is None else f"{solution.reason}; {said}"


def _print(solution: Solution[Any], problem: str, out: Path | None) -> None:
    """The answer; a plan that is written nowhere is said to be lost."""
    figures = [
        ("status", solution.status.value),
        ("objective", show_us(solution.objective)),
        ("bound", show_us(solution.bound)),
        ("gap", show_share(solution.gap)),
        ("overhead gap", show_share(solution.overhead_gap)),
        ("base", show_us(solution.base)),
        ("time", show_seconds(solution.solve_time_s)),
        ("solver", solution.solver),
        ("engine", solution.engine or "none"),
        ("least budget", show_bytes(solution.least_budget_bytes)),
    ]
    figures += [("reason", solution.reason)] if solution.reason else []
    figures += [("written to", _written(out))]
    print_figures(problem, figures)


def _written(out: Path | None) -> str:
    return "nowhere: give --out PLAN.json to keep it" if out is None else str(out)


def _say_stopped(solution: Solution[Any], stopped: str, out: Path | None) -> None:
    """What ended the search, on stderr."""
    if solution.plan is None:
        click.echo(f"bayplan: stopped by {stopped} before there was a plan", err=True)
        return
    kept = f"the best plan so far is kept, written {'to ' if out else ''}{_written(out)}"
    click.echo(f"bayplan: stopped by {stopped}: {kept}", err=True)
