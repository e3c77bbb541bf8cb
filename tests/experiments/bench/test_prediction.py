"""The section `prediction`: deviations worked out by hand, budgets from the least to the peak, one program on sim."""

from collections.abc import Iterator
from functools import partial

import pytest

from experiments.bench import prediction
from experiments.bench.prediction import SHIPPED, SOLVERS, Compared, all_programs, compare_program, prediction_figures
from experiments.bench.programs import programs, regression
from experiments.hardware import read_hardware
from solvers.ir import Hardware, OpGraph, Report, SwapProblem
from solvers.swap import make_swap_problem
from solvers.swap.evaluate import least_budget

SIM = read_hardware("sim-small")


def step(makespan_us: float, base_us: float | None = None, launch_us: float | None = None, **stall: float) -> Report:
    return Report(
        name="step",
        how="simulated",
        source="hand",
        makespan_us=makespan_us,
        base_us=base_us,
        stall_us=stall,
        launch_us=launch_us,
    )


def compared(predicted_us: float, executed_us: float, solver: str = "s", as_planned: bool = True) -> Compared:
    return Compared(solver, 0.25, step(predicted_us), step(executed_us), as_planned)


def test_a_deviation_is_relative_to_what_was_executed() -> None:
    assert compared(80, 100).deviation == pytest.approx(0.2)
    assert compared(125, 100).deviation == pytest.approx(-0.25)


def test_the_worst_plan_of_a_program_is_told_in_its_parts() -> None:
    """Predicted 125 us, executed 100: 25 % too long, which is worse than 20 % too short."""
    worst = Compared(
        "greedy-swap", 0.25, step(125, 90, 5, swap_in=10, swap_out=20), step(100, 90, None, swap_in=10), False
    )
    figure = prediction._program_figure("MLP", SIM, [compared(80, 100), worst, compared(100, 100)])
    assert (figure.name, figure.unit) == ("MLP, executed over predicted", "%")
    assert figure.value == pytest.approx(-25)
    assert (figure.ratio, figure.ratio_to) == (None, "")
    assert figure.how == (
        "worst of 3 (2 as planned): greedy-swap, 25% from least to peak, 125 µs predicted / 100 executed on sim-small "
        "(base 90/90, stall 30/10, launches 5/0)"
    )


def test_all_plans_are_ranked_by_how_far_they_are_off_either_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deviations −25, 20, 10, 1 and −2 %: the best is 1, the middle of five 10, the worst 25."""
    found = {"a": [compared(125, 100), compared(80, 100)], "b": [compared(90, 100), compared(99, 100)]}
    found["b"].append(compared(102, 100))

    def compare(name: str, hardware: Hardware) -> Iterator[Compared]:
        assert hardware == SIM
        return iter(found[name])

    monkeypatch.setattr(prediction, "all_programs", lambda: {name: (name, SIM) for name in found})
    monkeypatch.setattr(prediction, "compare_program", compare)
    figures = prediction_figures()
    assert [figure.name for figure in figures] == [
        "a, executed over predicted",
        "b, executed over predicted",
        "all plans, best",
        "all plans, median",
        "all plans, worst",
    ]
    assert [figure.value for figure in figures] == [pytest.approx(each) for each in (-25, 10, 1, 10, 25)]
    assert {figure.unit for figure in figures} == {"%"}
    assert figures[-1].how == "|executed - predicted| / executed, of 5 plans"


def test_shipped_models_run_on_their_hardware_the_others_on_one() -> None:
    found = all_programs()
    assert list(found) == [*SHIPPED, *programs()]
    assert {name: hardware.name for name, (_, hardware) in found.items() if name in SHIPPED} == SHIPPED
    assert {hardware.name for name, (_, hardware) in found.items() if name not in SHIPPED} == {"sim-small"}


def test_budgets_lie_between_the_least_and_the_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    """Share 0 is the least budget with a plan, 1 the peak, a quarter a quarter of the way; solvers in their order."""
    seen: list[tuple[str, float, int]] = []
    ends: set[tuple[int, int]] = set()

    def compare(
        workload: object, graph: OpGraph, problem: SwapProblem, solver: str, share: float
    ) -> tuple[str, float, int]:
        least = least_budget(make_swap_problem(graph, SIM, 0))
        ends.add((least, max(graph.memory_bytes)))
        seen.append((solver, share, problem.budget_bytes))
        return seen[-1]

    monkeypatch.setattr(prediction, "_compare", compare)
    list(compare_program(partial(regression, width=64, depth=3, rows=128), SIM, shares=(0.0, 0.25, 1.0)))
    ((least, peak),) = ends
    assert least < peak
    budgets = {0.0: least, 0.25: int(least + (peak - least) / 4), 1.0: peak}
    assert seen == [(solver, share, budgets[share]) for share in budgets for solver in SOLVERS]


def test_a_plan_at_the_least_budget_is_executed_as_predicted() -> None:
    (one,) = compare_program(partial(regression, width=64, depth=4, rows=128), SIM, shares=(0.0,), solvers=SOLVERS[:1])
    assert (one.solver, one.share, one.as_planned) == ("greedy-swap", 0.0, True)
    assert abs(one.deviation) < 0.02
    assert one.executed.how == "executed" and one.predicted.how == "simulated"


def test_without_sim_the_section_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = "runtime._sim is not built: run `make build`"
    monkeypatch.setattr(prediction, "why_missing", lambda name: missing if name == "runtime._sim" else None)
    (figure,) = prediction_figures()
    assert (figure.name, figure.value, figure.how) == ("predicted against executed", None, missing)
