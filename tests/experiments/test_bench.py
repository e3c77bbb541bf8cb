"""`make bench` on something small: every figure is there, and says how it was obtained."""

import contextlib
import io
import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace

from experiments.bench import offload
from experiments.bench.__main__ import bench
from experiments.bench.graph import graph_figures
from experiments.bench.layer import layer_figures
from experiments.bench.matching import GUARD_GOAL_NS, MATCHING_GOAL_NS, NAMES, matching_figures
from experiments.bench.records import record_figures
from experiments.bench.swap import swap_figures
from experiments.command_line import run
from solvers.ir import Limits, RecomputeGraphPlan, RecomputeGraphProblem, Solution, Status, Watch
from solvers.ir.codec import problem_to_raw, write_json
from tests.experiments.commands.console import Outcome, refused, write_problem
from tests.solvers.check.recompute_graph.test_judge import DROP_0, KEEP_ALL, STORY, plan


def _bench(*arguments: object) -> Outcome:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(bench, "bench", [str(argument) for argument in arguments])
    return Outcome(code, out.getvalue(), err.getvalue())


def test_swap_figures_agree_with_the_problem_worked_out_by_hand(tmp_path: Path) -> None:
    figures = {figure.name: figure for figure in swap_figures(write_problem(tmp_path / "p.json"), 5.0, 1)}
    assert figures["milp-swap, step time"].value == 80
    assert figures["milp-swap, step time"].ratio == pytest.approx(80 / 60)
    assert figures["milp-swap, gap"].value == 0
    assert figures["milp-swap, overhead gap"].value == 0
    assert figures["greedy overhead"].value == 20
    assert figures["greedy overhead"].ratio == 1
    assert all(figure.how for figure in figures.values())


def test_record_figures_count_operators_and_compare_with_a_plain_step() -> None:
    figures = {figure.name: figure for figure in record_figures(rounds=3)}
    assert set(figures) == {f"{name}, per operator" for name in ("plain step", "light", "detailed", "guard")}
    assert all(figure.value is not None and figure.how for figure in figures.values())
    plain, detailed = figures["plain step, per operator"], figures["detailed, per operator"]
    assert plain.value is not None
    assert detailed.value is not None
    assert detailed.ratio == pytest.approx(1 + detailed.value / plain.value)


def test_without_the_extension_the_section_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtime.device.native.why_missing", lambda name: f"{name} is not built: run `make build`")
    outcome = _bench("--only", "records")
    assert outcome.code == 0
    lines = [line for line in outcome.out.splitlines() if "per operator" in line]
    assert len(lines) == 3
    assert all("not measured" in line and "runtime._C is not built" in line for line in lines)


def test_the_file_holds_what_the_table_shows_and_nothing_that_names_the_machine(tmp_path: Path) -> None:
    problem, out = write_problem(tmp_path / "p.json"), tmp_path / "bench.json"
    outcome = _bench("--only", "swap", "--instance", problem, "--time-limit", "5", "--json", out)
    assert (outcome.code, outcome.err) == (0, "")
    raw = json.loads(out.read_text())
    assert set(raw["machine"]) == {"processor", "cores", "python", "torch"}
    for figure in raw["figures"]:
        assert figure["name"] in outcome.out
        assert figure["how"] in outcome.out


def test_bad_input(tmp_path: Path) -> None:
    problem = write_problem(tmp_path / "p.json")
    assert "is not one of" in refused(_bench("--only", "everything"))
    assert "there is no flag '--jsn': did you mean '--json'?" in refused(_bench("--jsn", "x"))
    assert "would write over the input" in refused(_bench("--instance", problem, "--json", problem))
    assert "cannot read" in refused(_bench("--instance", tmp_path / "none.json"))


def test_layer_figures_hold_every_shape_of_the_papers_figure() -> None:
    figures = layer_figures(runs=1)
    models = ["gpt-1.3b", "gpt-4.7b", "gpt-7b", "gpt-13b", "gpt-20b", "gpt-23b", "gpt-175b"]
    assert [figure.name for figure in figures[::2]] == [f"heu, {model}" for model in models]
    assert [figure.name for figure in figures[1::2]] == [f"heu and partition, {model}" for model in models]
    assert all(figure.value and "no partition" not in figure.how for figure in figures)
    layers = figures[-1].how.partition("layers ")[2].partition(";")[0]
    assert sum(map(int, layers.split("-"))) == 96


@dataclass(frozen=True)
class Says:
    """Answers with a plan of tests/solvers/check's story, true or not."""

    clean: bool

    def solve(
        self, problem: RecomputeGraphProblem, limits: Limits, watch: Watch | None = None
    ) -> Solution[RecomputeGraphPlan]:
        """Recompute op 0 in stage 3 (22 µs), or keep everything, which the budget forbids."""
        answer = plan(again=[(3, 0)], keep=DROP_0) if self.clean else plan(keep=KEEP_ALL)
        objective = 22 if self.clean else 18
        return Solution(
            status=Status.FEASIBLE, plan=answer, solver="says", objective=objective, bound=18, base=18, engine="none"
        )


@pytest.fixture
def story(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("experiments.bench.graph.build_solver", lambda name, _: Says(clean=name == "says"))
    path = tmp_path / "story.json"
    write_json(path, problem_to_raw(replace(STORY, budget_bytes=12)))
    return path


def test_graph_figures_are_those_of_the_story_worked_out_by_hand(story: Path) -> None:
    step, gap, overhead = graph_figures([story], 1.0, 1, "says")
    assert step.value == 22
    assert step.ratio == pytest.approx(22 / 18)
    assert gap.value == pytest.approx(100 * 4 / 22)
    assert overhead.value == pytest.approx(100)
    assert overhead.ratio == pytest.approx(20)


def test_a_plan_that_the_judge_refuses_is_no_figure(story: Path, tmp_path: Path) -> None:
    (figure,) = graph_figures([story], 1.0, 1, "lies")
    assert figure.value is None
    assert "13 bytes in use, budget 12" in figure.how
    (figure,) = graph_figures([write_problem(tmp_path / "swap.json")], 1.0, 1, "says")
    assert "give a recompute-graph problem" in figure.how
    (figure,) = graph_figures([], 1.0, 1)
    assert "no instance matches" in figure.how


def test_matching_figures_have_their_goals() -> None:
    figures = {figure.name: figure for figure in matching_figures(rounds=3)}
    assert tuple(figures) == NAMES
    for name, figure in figures.items():
        goal = MATCHING_GOAL_NS if name.startswith("matching") else GUARD_GOAL_NS
        assert figure.value is not None and figure.ratio == pytest.approx(figure.value / goal)
    assert "sightings" in figures["matching, each tensor"].how


def test_without_sim_the_section_matching_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtime.device.native.why_missing", lambda name: f"{name} is not built: run `make build`")
    assert all(figure.value is None and "not built" in figure.how for figure in matching_figures(rounds=2))


def test_every_way_of_spending_less_memory_trains_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the GPU of a machine that has one, else on sim; the streamed library only where it is installed."""
    monkeypatch.setattr(offload, "SETTLED", 1)
    monkeypatch.setattr(offload, "MEASURED", 1)
    figures = {figure.name: figure for figure in offload.offload_figures()}
    assert tuple(figures) == (*offload.NAMES, offload.HIDDEN)
    assert figures.pop(offload.HIDDEN).how == "a trace needs a CUDA device"
    for name, figure in figures.items():
        if figure.value is None:
            assert name == "streamed offload" and "not installed" in figure.how
        else:
            assert figure.value > 0 and "losses equal" in figure.how
    peak = float(figures["session"].how.split("%")[0].removeprefix("peak "))
    assert peak <= 100 * offload.BUDGET + 0.5
