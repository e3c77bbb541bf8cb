"""The section `graph`: figures of the judges' story, times told by a clock of our own; what is no figure says why."""

from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace

from experiments.bench import graph
from experiments.bench.graph import graph_figures, shipped_instances
from solvers.ir import Limits, RecomputeGraphPlan, RecomputeGraphProblem, Solution, Status
from solvers.ir.codec import problem_to_raw, write_json
from tests.experiments.bench.clocks import Clock, alone
from tests.experiments.commands.console import write_problem
from tests.solvers.check.recompute_graph.test_judge import DROP_0, KEEP_ALL, STORY, plan

NAMED = replace(STORY, budget_bytes=12, name="the story")


@dataclass(frozen=True)
class Says:
    """Answers with a plan of the story, true or not, or with none."""

    name: str

    def solve(self, problem: RecomputeGraphProblem, limits: Limits) -> Solution[RecomputeGraphPlan]:
        """Recompute op 0 in stage 3 (22 µs), or keep everything, which the budget forbids; 18 µs with any memory."""
        assert limits == Limits(time_s=6.0, threads=3)
        if self.name == "gives up":
            return Solution(status=Status.UNKNOWN, plan=None, solver="gives up", reason="it was late")
        answer = plan(keep=KEEP_ALL) if self.name == "lies" else plan(again=[(3, 0)], keep=DROP_0)
        base = None if self.name == "no base" else 18
        objective = 18 if self.name == "lies" else 22
        bound = None if self.name == "no bound" else 18
        return Solution(
            status=Status.OPTIMAL if objective == bound else Status.FEASIBLE,
            plan=answer,
            solver="says",
            objective=objective,
            bound=bound,
            base=base,
        )


@pytest.fixture
def story(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The story as a file; every solver takes 2.5 s."""
    monkeypatch.setattr(graph, "build_solver", lambda name, _: Says(name))
    monkeypatch.setattr(graph, "time", Clock(perf_counter=alone(2.5, 2.5)))
    path = tmp_path / "story.json"
    write_json(path, problem_to_raw(NAMED))
    return path


def test_three_figures_of_a_plan_worked_out_by_hand(story: Path) -> None:
    """22 us, bounded by 18, of which all 4 above 18 are overhead: 4/22 of the objective, 4/4 of the overhead."""
    step, gap, overhead = graph_figures([story], 6.0, 3, "says")
    assert (step.name, step.value, step.unit) == ("says, the story, step", 22, "µs")
    assert (step.ratio, step.ratio_to) == (22 / 18, "unlimited")
    assert step.how == "4 operators, 2.5 s of 6 s, 3 threads, judged clean"
    assert (gap.name, gap.unit) == ("says, the story, gap", "%")
    assert gap.value == gap.ratio == pytest.approx(400 / 22)
    assert gap.ratio_to == "goal of 1 %"
    assert gap.how == "(objective - bound) / objective"
    assert (overhead.name, overhead.value, overhead.unit) == ("says, the story, overhead gap", 100, "%")
    assert (overhead.ratio, overhead.ratio_to) == (20, "goal of 5 %")
    assert overhead.how == "(objective - bound) / (objective - base)"


def test_every_instance_has_its_figures(story: Path) -> None:
    assert len(graph_figures([story, story], 6.0, 3, "says")) == 6


def test_without_a_bound_there_is_no_gap_and_without_a_base_no_ratio(story: Path) -> None:
    step, gap, overhead = graph_figures([story], 6.0, 3, "no bound")
    assert (step.value, gap.value, gap.ratio, overhead.value, overhead.ratio) == (22, None, None, None, None)
    step, gap, overhead = graph_figures([story], 6.0, 3, "no base")
    assert (step.ratio, overhead.value) == (1, None)
    assert gap.value == pytest.approx(400 / 22)


@pytest.mark.parametrize(
    ("solver", "told"),
    [
        ("lies", "stage 2, op 2 has 13 bytes in use, budget 12"),
        ("gives up", "it was late"),
    ],
)
def test_what_the_judge_refuses_or_nobody_found_is_no_figure(story: Path, solver: str, told: str) -> None:
    (figure,) = graph_figures([story], 6.0, 3, solver)
    assert (figure.name, figure.value, figure.ratio) == (f"{solver}, story", None, None)
    assert figure.how == f"no clean plan in 2.5 s: {told}"


def test_a_file_of_another_kind_does_not_end_the_others(story: Path, tmp_path: Path) -> None:
    other = write_problem(tmp_path / "swap.json")
    figures = graph_figures([other, story], 6.0, 3, "says")
    assert (figures[0].name, figures[0].value) == ("says, swap", None)
    assert figures[0].how == f"{other} holds a swap problem: give a recompute-graph problem"
    assert len(figures) == 4


def test_no_instances_are_a_sentence_with_a_remedy() -> None:
    (figure,) = graph_figures([], 1.0, 1)
    assert figure.name == "opt, gap"
    assert figure.how == "no instance matches opt-gpt300m-24l-*.json: give one with --graph"


def test_the_five_budgets_are_shipped() -> None:
    assert [path.stem for path in shipped_instances()] == [f"opt-gpt300m-24l-{number}" for number in range(1, 6)]
