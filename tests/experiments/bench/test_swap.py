"""The section `swap`: figures of two answers given by hand, their times told by a clock of our own."""

from pathlib import Path

import pytest

from experiments.bench import swap
from experiments.bench.figure import Figure
from experiments.bench.swap import swap_figures
from solvers.ir import InvalidInput, Limits, Solution, Status, SwapProblem
from solvers.ir.codec import problem_to_raw, write_json
from tests.experiments.bench.clocks import Clock, alone
from tests.experiments.commands.console import write_problem
from tests.solvers.check.recompute_graph.test_judge import STORY


class Answers:
    """Gives one answer to every call, and remembers within which limits it was asked."""

    def __init__(self, answer: Solution[str]) -> None:
        self.answer, self.limits = answer, list[Limits]()

    def solve(self, problem: SwapProblem, limits: Limits) -> Solution[str]:
        """The answer."""
        self.limits.append(limits)
        return self.answer


def plan(objective: int, bound: int | None = None, base: int | None = 60) -> Solution[str]:
    status = Status.OPTIMAL if objective == bound else Status.FEASIBLE
    return Solution(
        status=status, plan="a plan", solver="s", objective=objective, bound=bound, base=base, engine="Abacus 1"
    )


NOTHING: Solution[str] = Solution(status=Status.UNKNOWN, plan=None, solver="s", base=60)


def figures(
    path: Path, monkeypatch: pytest.MonkeyPatch, quick: Solution[str], best: Solution[str]
) -> dict[str, Figure]:
    """Greedy takes 1, 2, 3, 4, 6, 7 and 70 ms, the optimizer two seconds."""
    solvers = {"greedy-swap": Answers(quick), "milp-swap": Answers(best)}
    monkeypatch.setattr(swap, "build_solver", lambda name, _: solvers[name])
    monkeypatch.setattr(swap, "time", Clock(perf_counter=alone(0.07, 0.001, 0.002, 0.003, 0.004, 0.006, 0.007, 2.0)))
    found = {figure.name: figure for figure in swap_figures(write_problem(path / "p.json"), 9.0, 3)}
    assert [len(solvers[name].limits) for name in ("greedy-swap", "milp-swap")] == [7, 1]
    assert {limits for one in solvers.values() for limits in one.limits} == {Limits(time_s=9.0, threads=3)}
    return found


def test_every_figure_of_two_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Greedy plans 90 us, the optimizer 80 with a bound of 75, unlimited memory takes 60.

    Overheads are 30 and 20. The gap is 5 of 80, of the overhead 5 of 20. The median of greedy's times is 4 ms, which
    goes 500 times into 2 s.
    """
    found = figures(tmp_path, monkeypatch, plan(90), plan(80, 75))
    assert {name: (one.value, one.unit, one.ratio, one.ratio_to) for name, one in found.items()} == {
        "greedy-swap, time": (pytest.approx(4), "ms", None, ""),
        "greedy-swap, step time": (90, "µs", 1.5, "unlimited"),
        "milp-swap, time": (pytest.approx(2), "s", pytest.approx(500), "greedy"),
        "milp-swap, step time": (80, "µs", pytest.approx(80 / 60), "unlimited"),
        "milp-swap, gap": (6.25, "%", None, ""),
        "milp-swap, overhead gap": (25, "%", None, ""),
        "greedy overhead": (30, "µs", 1.5, "milp"),
    }
    assert [one.how for one in found.values()] == [
        "median of 7 runs on tiny",
        "its plan, on tiny",
        "one run, limit 9 s, on tiny",
        "Abacus 1",
        "(objective - bound) / objective",
        "(objective - bound) / (objective - base)",
        "objective - base",
    ]


def test_what_an_answer_does_not_hold_is_no_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an optimizer's plan there is no gap and nothing to compare greedy with; times are there all the same."""
    found = figures(tmp_path, monkeypatch, plan(90), NOTHING)
    missing = {name for name, figure in found.items() if figure.value is None}
    assert missing == {"milp-swap, step time", "milp-swap, gap", "milp-swap, overhead gap"}
    assert found["milp-swap, step time"].how == "none"
    assert (found["greedy overhead"].value, found["greedy overhead"].ratio) == (30, None)
    assert all(found[name].ratio is None for name in missing)


def test_an_optimizer_without_overhead_leaves_no_ratio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan is as fast as unlimited memory: the overhead is 0, of which 30 is no multiple; both gaps are 0."""
    found = figures(tmp_path, monkeypatch, plan(90), plan(60, 60))
    assert found["milp-swap, step time"].ratio == 1
    assert (found["milp-swap, gap"].value, found["milp-swap, overhead gap"].value) == (0, 0)
    assert (found["greedy overhead"].value, found["greedy overhead"].ratio) == (30, None)


@pytest.mark.parametrize("base", [None, 0])
def test_without_a_base_there_is_no_ratio_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, base: int | None
) -> None:
    found = figures(tmp_path, monkeypatch, plan(90, base=base), plan(80, 75, base))
    assert found["greedy-swap, step time"].ratio is None
    assert found["greedy overhead"].value == (None if base is None else 90)


def test_the_tiny_problem_by_both_solvers(tmp_path: Path) -> None:
    """Worked out by hand where it stands: 80 us are the optimum, 60 the step with unlimited memory."""
    found = {figure.name: figure for figure in swap_figures(write_problem(tmp_path / "p.json"), 5.0, 1)}
    step, overhead = found["milp-swap, step time"], found["greedy overhead"]
    assert (step.value, step.ratio) == (80, 80 / 60)
    assert (found["milp-swap, gap"].value, found["milp-swap, overhead gap"].value) == (0, 0)
    assert (overhead.value, overhead.ratio) == (20, 1)


def test_a_problem_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "story.json"
    write_json(path, problem_to_raw(STORY))
    with pytest.raises(InvalidInput) as refusal:
        swap_figures(path, 1.0, 1)
    assert str(refusal.value) == f"{path} holds a recompute-graph problem: give a swap problem"
