"""How a kind of problem looks on the command line: what `make` takes and writes, what `simulate` shows."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import click

from experiments.commands.questions import questions
from experiments.commands.show import Figures
from experiments.printable import printable
from solvers.ir.amounts import parse_budget
from solvers.ir.codec import problem_to_raw
from solvers.ir.errors import InvalidInput
from solvers.ir.graph import OpGraph
from solvers.ir.hardware import Hardware
from solvers.ir.problem import Plan, Problem
from solvers.ir.report import Report
from solvers.ir.schedule import Schedule

Option = Callable[[Callable[..., Any]], Callable[..., Any]]
"""What `click.option` returns."""


@dataclass(frozen=True)
class Request:
    """What `make` was asked for: `hardware` as it was written, `machine` as it was read, all other options in `cut`."""

    kind: str
    hardware: str
    machine: Hardware
    budget: str | None
    cut: Mapping[str, Any]


class Made(NamedTuple):
    """What `make` writes: its name, its JSON, what is printed of it, and what to warn of."""

    name: str
    raw: dict[str, Any]
    figures: Figures
    warnings: tuple[str, ...] = ()

    @classmethod
    def of(cls, problem: Problem, figures: Figures, warnings: tuple[str, ...] = ()) -> "Made":
        """A problem with these figures."""
        return cls(problem.name, problem_to_raw(problem), figures, warnings)


class Shown(NamedTuple):
    """What `simulate` found: the report, the schedule where there is one, and what is printed."""

    report: Report
    schedule: Schedule | None
    figures: Figures


def _as_it_is(request: Request, problem: Problem) -> Problem:
    return problem


def _nothing(problem: Any, graph: OpGraph, budget: str | None, peak_bytes: int) -> Iterator[str]:
    return iter(())


@dataclass(frozen=True, kw_only=True)
class Face:
    """One kind on the command line; the defaults suit a kind that `solvers.kinds` makes from a stage's graph.

    - `options`: its own options of `make`. `own`: the parameters that mean nothing to kinds that do not list them too.
    - `meaningless`: parameters that mean nothing to it, and `why`. `of_graph`: others that a --graph leaves open.
    - `from_graph`, `from_shape`, `from_profile`: make the problem; None: through `solvers.planner.make_problem`.
    - `refined`: the problem so made, with what else was asked for.
    - `warnings`: sentences against the problem made of a graph, from (problem, graph, --budget, peak in bytes).
    - `simulate`: what a valid plan would do; None: through `solvers.planner.simulate_plan`.
    """

    options: tuple[Option, ...] = ()
    own: tuple[str, ...] = ()
    meaningless: tuple[str, ...] = ()
    why: str = ""
    of_graph: tuple[str, ...] = ()
    from_graph: Callable[[Request, Path], Made] | None = None
    from_shape: Callable[[Request, str], Made] | None = None
    from_profile: Callable[[Request], Made] | None = None
    refined: Callable[[Request, Any], Problem] = _as_it_is
    warnings: Callable[[Any, OpGraph, str | None, int], Iterator[str]] = _nothing
    simulate: Callable[[Any, Any], Shown] | None = None


def simulated(face: Face, problem: Problem, plan: Plan, figures: Callable[[Report], Figures]) -> Shown:
    """What a valid plan would do, in the kind's own words where it has some, else with `figures` of the report."""
    from solvers.planner import simulate_plan

    if face.simulate is not None:
        return face.simulate(problem, plan)
    report, schedule = simulate_plan(problem, plan)
    return Shown(report, schedule, figures(report))


def budget_bytes(budget: str | None, peak_bytes: int, machine: Hardware) -> int:
    """The budget in bytes: as given, a percentage being of the peak; the device's memory where none is given.

    One that was given and may be a slip (no unit, or not below the peak) is questioned on stderr.
    """
    if budget is None:
        return machine.device().memory_bytes
    amount = given_bytes(budget, peak_bytes)
    for question in questions(budget, amount, peak_bytes):
        click.echo(f"bayplan: warning: {printable(question)}", err=True)
    return amount


def given_bytes(budget: str, peak_bytes: int) -> int:
    """A budget that was given, in bytes; raises `InvalidInput` for one in which nothing runs."""
    amount = parse_budget(budget, peak_bytes)
    if amount < 1:
        raise InvalidInput(f"--budget is {budget!r}, in which nothing runs: give at least 1 byte")
    return amount
