"""The demo end to end on a tiny model: every policy, every file, every promise of the table."""

import itertools
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from math import ceil
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest
import torch

from experiments import execution
from experiments.compare import main
from experiments.figures import Figures, figures_of
from experiments.rows import read_rows
from experiments.training.compare import exit_code
from runtime.device.native import why_missing
from runtime.swap import Executed, SwapExecutor
from solvers.check import check_plan, check_schedule
from solvers.ir import BayplanError, InvalidInput, Report, Row, Schedule
from solvers.ir.codec import read_document, read_plan, read_problem
from solvers.ir.graph import OpGraph
from solvers.swap import MilpSwap
from tests.experiments.tiny import LITTLE_WORK, tiny_overrides

pytestmark = pytest.mark.skipif(why_missing("runtime._sim") is not None, reason="the simulated device is not built")
T = TypeVar("T")
SOLVERS = ("greedy-swap", "milp-swap")


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demo")
    other = f"robustness.hardware={folder / 'sim-other.json'}"
    words = ["experiment=demo", "steps=3", "robustness.noise_seeds=[1,2]", other, *tiny_overrides(folder)]
    assert main([*words, f"run_dir={folder / 'run'}"]) == 0
    return folder / "run"


def rows_of(folder: Path) -> dict[str, Row]:
    return {row.asked["policy"]: row for row in read_rows(folder / "rows.jsonl")}


def figures(folder: Path, policy: str) -> Figures:
    return figures_of(rows_of(folder)[policy].figures)


def test_every_policy_has_a_row_that_says_where_it_comes_from(demo: Path) -> None:
    rows = rows_of(demo)
    assert list(rows) == ["unlimited", "none", "recompute", *SOLVERS, "joint"]
    for row in rows.values():
        assert row.experiment == "demo"
        assert row.provenance.startswith("sim-executed, hardware tiny sim-small")
        assert row.asked["steps"] == 3


def test_without_a_plan_the_model_does_not_fit(demo: Path) -> None:
    row = rows_of(demo)["none"]
    assert row.outcome == "out-of-memory"
    assert row.reason is not None and "out of memory" in row.reason
    assert figures(demo, "unlimited").peak_bytes > row.asked["budget_bytes"]


@pytest.mark.parametrize("policy", ["recompute", *SOLVERS, "joint"])
def test_each_other_policy_trains_within_the_budget_bit_for_bit(demo: Path, policy: str) -> None:
    row, found, unlimited = rows_of(demo)[policy], figures(demo, policy), figures(demo, "unlimited")
    assert row.outcome == "ok"
    assert row.reason is None  # every step but the first followed its plan
    assert found.peak_bytes is not None and found.peak_bytes <= row.asked["budget_bytes"]
    assert found.losses == unlimited.losses and len(found.losses or ()) == 3
    assert found.equal_losses and found.equal_parameters and found.equal_gradients


@pytest.mark.parametrize("policy", SOLVERS)
def test_what_was_executed_is_what_was_predicted(demo: Path, policy: str) -> None:
    found = figures(demo, policy)
    assert found.deviation is not None and abs(found.deviation) < 0.02
    assert found.predicted_us is not None and ceil(found.predicted_us) == found.objective_us
    assert found.step_us is not None and found.unlimited_us is not None and found.stall_us is not None
    assert found.launch_us is not None
    assert found.step_us == pytest.approx(found.unlimited_us + found.stall_us + found.launch_us, abs=2)
    assert found.ratio is not None and found.ratio >= 1
    assert found.predicted_peak_bytes is not None and found.peak_bytes is not None
    assert found.peak_bytes == pytest.approx(found.predicted_peak_bytes, rel=0.01)


def test_a_joint_plan_is_predicted_for_the_passes_and_named_beside_its_own_problem(demo: Path) -> None:
    found = figures(demo, "joint")
    assert found.pass_us is not None and found.predicted_us == found.objective_us is not None
    assert found.step_us is not None and found.predicted_us is not None
    assert found.pass_us < found.step_us  # the optimizer is beyond it
    assert found.deviation == pytest.approx(1 - found.predicted_us / found.pass_us)
    assert found.peak_bytes is not None and found.predicted_peak_bytes is not None
    assert found.peak_bytes <= found.predicted_peak_bytes <= (found.budget_bytes or 0)
    assert found.bound_us is not None and found.bound_us <= found.predicted_us
    problem, sha256 = read_problem(demo / "problems/joint/joint.json")
    assert check_plan(problem, read_plan(demo / "plans/joint/joint.json"), sha256).clean
    assert check_schedule(problem, read_document(demo / "schedules/joint.json", Schedule)).clean
    assert (
        "Of joint plans all that is predicted is of the forward and backward pass." in (demo / "table.md").read_text()
    )
    assert "joint/joint" in (demo / "report.html").read_text()


def test_the_optimizer_is_no_worse_than_the_heuristic_and_knows_how_good_it_is(demo: Path) -> None:
    greedy, milp = (figures(demo, name) for name in SOLVERS)
    assert milp.objective_us is not None and greedy.objective_us is not None
    assert milp.objective_us <= greedy.objective_us
    assert milp.bound_us is not None and milp.base_us is not None
    assert milp.base_us <= milp.bound_us <= milp.objective_us
    assert milp.gap is not None and milp.overhead_gap is not None
    assert greedy.bound_us is None


@pytest.mark.parametrize("policy", SOLVERS)
def test_plans_were_tried_under_noise_and_on_other_hardware(demo: Path, policy: str) -> None:
    found = figures(demo, policy)
    assert found.noise_stall_us is not None and found.noise_worst_us is not None
    assert found.noise_worst_us >= found.noise_stall_us
    assert found.stall_us is not None and found.other_stall_us is not None
    assert found.other_stall_us > found.stall_us  # its link is slower


def test_the_run_folder_holds_everything(demo: Path) -> None:
    problem, sha256 = read_problem(demo / "problem.json")
    assert len(read_document(demo / "graph.json", OpGraph).ops) > 20
    for name in SOLVERS:
        assert check_plan(problem, read_plan(demo / f"plans/{name}.json"), sha256).clean
        assert check_schedule(problem, read_document(demo / f"schedules/{name}.json", Schedule)).clean
        for how in ("simulated", "executed"):
            assert read_document(demo / f"reports/{name}.{how}.json", Report).how == how
        assert json.loads((demo / f"traces/{name}.json").read_text())["traceEvents"]
    for name in ("config.yaml", "table.txt", "table.md", "memory.svg", "memory.png", "lanes.svg", "lanes.png"):
        assert (demo / name).stat().st_size > 300, name
    assert (demo / "memory.png").read_bytes().startswith(b"\x89PNG")


def test_the_page_asks_nothing_of_the_network(demo: Path) -> None:
    page = (demo / "report.html").read_text()
    assert page.count("<svg") > 10
    assert "milp-swap" in page
    assert "<script" not in page and "<link" not in page and "<img" not in page
    assert "@import" not in page and "url(http" not in page


def test_the_settings_of_a_run_are_written_with_it(demo: Path) -> None:
    assert "budget_fraction: 0.55" in (demo / "config.yaml").read_text()


@pytest.mark.parametrize(
    ("fault", "message"),
    [("float('nan')", "the loss of step 1 is nan"), ("[][0]", "raised IndexError at their_wild_model.py:7")],
)
def test_a_model_that_cannot_be_compared_is_refused_and_leaves_nothing(
    fault: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [
        "import torch",
        "def build(device):",
        "    model = torch.nn.Linear(4, 4).to(device)",
        "    optimizer = torch.optim.SGD(model.parameters(), 0.1)",
        "    def step():",
        "        loss = model(torch.ones(4, 4, device=device)).sum()",
        f"        loss = loss * {fault}",
        "        loss.backward()",
        "        return loss.detach()",
        "    return model, optimizer, step",
    ]
    (tmp_path / "their_wild_model.py").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "their_wild_model", raising=False)
    run = tmp_path / "run"
    with pytest.raises(InvalidInput, match=message):
        main(["model=own", "model.factory=their_wild_model:build", "steps=2", "baselines=[none]", f"run_dir={run}"])
    assert not run.exists()


def test_a_budget_below_the_least_is_a_row_with_the_least_one_and_exit_code_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["steps=1", "problem.budget_fraction=0.1", "plots=false", "baselines=[]", *tiny_overrides(tmp_path)]
    assert main([*words, f"run_dir={tmp_path / 'run'}"]) == 1
    for row in read_rows(tmp_path / "run" / "rows.jsonl"):
        assert row.outcome == "infeasible"
        assert figures_of(row.figures).least_budget_bytes
    assert "the least feasible one exactly" in capsys.readouterr().out


def test_a_first_step_that_does_not_fit_is_run_with_room_to_say_what_a_plan_needs(tmp_path: Path) -> None:
    """On a device of the budget's size it ends before anything is measured: that alone names no least budget."""
    words = ["steps=2", "problem.budget_fraction=0.35", "plots=false", "baselines=[]", "solver=greedy-joint"]
    assert main([*words, *tiny_overrides(tmp_path), f"run_dir={tmp_path / 'run'}"]) == 1
    (row,) = read_rows(tmp_path / "run" / "rows.jsonl")
    assert row.outcome == "infeasible" and row.reason is not None and "takes at least" in row.reason
    told = figures_of(row.figures)
    assert told.status == "infeasible" and told.swapped_bytes is None
    assert told.least_budget_bytes is not None and told.budget_bytes is not None
    assert told.least_budget_bytes > told.budget_bytes


def test_a_plan_is_executed_even_where_it_has_nothing_to_do(tmp_path: Path) -> None:
    words = ["steps=1", "problem.budget_fraction=1.5", "plots=false", "solver=milp-swap", "baselines=[]"]
    assert main([*words, *tiny_overrides(tmp_path), f"run_dir={tmp_path / 'run'}"]) == 0
    (row,) = read_rows(tmp_path / "run" / "rows.jsonl")
    assert figures_of(row.figures).status == "optimal"
    assert figures_of(row.figures).stall_us == 0
    assert row.reason is not None and "so nothing has to leave: give less" in row.reason


def refused(words: Sequence[str]) -> str:
    with pytest.raises(BayplanError) as caught:
        main(words)
    assert isinstance(caught.value, InvalidInput)
    return str(caught.value)


class Departing(SwapExecutor):
    """The executor of a program whose second step gives other sizes than the profiled one."""

    SENTENCE = "operator 32 gives 4096 bytes where its profile gave 8192: this step depends on its data, use a session"
    ERROR: Exception = BayplanError(SENTENCE)

    def run(self, step: Callable[[], T]) -> Executed[T]:
        raise self.ERROR


def broken_run(folder: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> dict[str, Row]:
    """A comparison in which no plan can be executed; it ends with exit code 1."""
    monkeypatch.setattr(Departing, "ERROR", error)
    monkeypatch.setattr(execution, "SwapExecutor", Departing)
    words = ["steps=2", "solver=greedy-swap", "baselines=[unlimited,none]", *tiny_overrides(folder)]
    assert main([*words, f"run_dir={folder / 'run'}"]) == 1
    error.with_traceback(None)  # the parameters of tests live on, and the frames hold what was trained
    return rows_of(folder / "run")


def test_a_sentence_of_the_executors_ends_its_policy_and_not_the_experiment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = broken_run(tmp_path, monkeypatch, Departing.ERROR)
    assert [row.outcome for row in rows.values()] == ["ok", "out-of-memory", "refused"]
    assert rows["greedy-swap"].reason == Departing.SENTENCE
    assert f"greedy-swap: {Departing.SENTENCE}" in capsys.readouterr().out
    page = (tmp_path / "run" / "report.html").read_text()
    assert f'<li><b>greedy-swap</b> <span class="outcome bad">refused</span>: {Departing.SENTENCE}</li>' in page
    assert '<b>none</b> <span class="outcome bad">out-of-memory</span>: sim out of memory' in page


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (torch.OutOfMemoryError("sim out of memory: 5 bytes do not fit"), "out-of-memory"),
        (RuntimeError("a race between two streams"), "error"),
        (InvalidInput("the step returned a float: it must return the loss"), "refused"),
    ],
)
def test_a_plan_that_breaks_its_promise_is_exit_code_1(
    error: Exception, outcome: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = broken_run(tmp_path, monkeypatch, error)["greedy-swap"]
    assert row.outcome == outcome
    assert row.reason is not None and str(error) in row.reason


def test_a_planner_that_refuses_is_a_row_and_the_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: object) -> None:
        raise InvalidInput("the budget is 3 bytes, the least feasible one 8: raise it")

    monkeypatch.setattr(MilpSwap, "solve", refuses)
    words = ["steps=1", "plots=false", "baselines=[]", *tiny_overrides(tmp_path)]
    assert main([*words, f"run_dir={tmp_path / 'run'}"]) == 0
    rows = rows_of(tmp_path / "run")
    assert {name: row.outcome for name, row in rows.items()} == {"greedy-swap": "ok", "milp-swap": "refused"}
    assert rows["milp-swap"].reason == "the budget is 3 bytes, the least feasible one 8: raise it"


@pytest.mark.parametrize(
    ("figures", "outcome", "broken"),
    [
        (Figures(), "ok", False),
        (Figures(), "out-of-memory", True),
        (Figures(), "error", True),
        (Figures(equal_losses=False), "ok", True),
        (Figures(equal_parameters=False), "ok", True),
        (Figures(equal_gradients=False), "ok", True),
        (Figures(peak_bytes=101), "ok", True),
        (Figures(as_planned=False), "ok", False),  # it fits and changes nothing: told in words
    ],
)
def test_one_broken_promise_is_exit_code_1_whatever_the_others_did(
    figures: Figures, outcome: str, broken: bool
) -> None:
    whole = Figures(
        status="feasible",
        swapped_bytes=50,
        budget_bytes=100,
        peak_bytes=100,
        equal_losses=True,
        equal_parameters=True,
        equal_gradients=True,
    )
    none = Row(
        experiment="e",
        asked={"policy": "none"},
        outcome="out-of-memory",
        figures=Figures(budget_bytes=100).to_raw(),
        provenance="",
        commit=None,
        seed=0,
    )
    kept = msgspec.structs.replace(none, outcome="ok", figures=whole.to_raw())
    judged = msgspec.structs.replace(none, outcome=outcome, figures=whole.joined(figures).to_raw())
    infeasible = msgspec.structs.replace(none, outcome="infeasible", figures=Figures(status="infeasible").to_raw())
    assert exit_code([none, kept]) == exit_code([none]) == exit_code([kept, infeasible]) == 0
    assert exit_code([none, kept, judged]) == exit_code([judged, kept]) == (1 if broken else 0)
    assert exit_code([none, infeasible]) == 1


def test_mistakes_are_refused_before_anything_is_trained_or_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "did you mean 'demo'?" in refused(["experiment=dmo"])
    assert "there is no flag '--fast'" in refused(["--fast"])
    assert "add -m" in refused(["steps=1,2"])
    assert "did you mean 'gurobi'?" in refused(["solver.milp-swap.engine=gurob"])
    assert "steps is 1, but joint measures the first step" in refused(["solver=[joint]", "steps=1"])
    assert "there is no hardware 'nowhere'" in refused(["hardware.file=nowhere"])
    assert "there is no hardware 'nowhere'" in refused(["robustness.hardware=nowhere"])
    assert "cannot make the folder" in refused([f"run_dir={__file__}/run"])
    assert list(tmp_path.iterdir()) == []


def test_a_model_that_fits_no_device_is_refused(tmp_path: Path) -> None:
    words = tiny_overrides(tmp_path)
    path = tmp_path / "sim-small.json"
    path.write_text(path.read_text().replace('"memory_bytes": 4294967296', '"memory_bytes": 1048576'))
    assert "does not even fit the whole device" in refused([*words, f"run_dir={tmp_path / 'run'}"])


OWN_MODEL = """
import torch
from torch import nn

def create(device):
    model = nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(64, 64), nn.GELU()))).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.randn(4096, 64).to(device)
    def step():
        optimizer.zero_grad()
        loss = model(data).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()
    return model, optimizer, step
"""


def test_ones_own_model_is_compared_like_any_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_own_model.py").write_text(OWN_MODEL)
    monkeypatch.chdir(tmp_path)
    words = ["model=own", "model.factory=my_own_model:create", "steps=2", *LITTLE_WORK, "run_dir=run"]
    assert main(words) == 0
    rows = rows_of(tmp_path / "run")
    assert {name: row.outcome for name, row in rows.items()} == {
        "none": "out-of-memory",
        "unlimited": "ok",
        "greedy-swap": "ok",
        "milp-swap": "ok",
    }
    assert figures_of(rows["milp-swap"].figures).equal_parameters
    page = (tmp_path / "run" / "report.html").read_text()
    assert "<h1>bayplan: my_own_model:create</h1>" in page  # whose page it is
    assert "</span>: sim out of memory" in page
    assert read_document(tmp_path / "run" / "graph.json", OpGraph).name == "my_own_model:create"


def test_a_run_on_cuda_never_loads_the_simulated_device(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from experiments.cli import main\n"
        f"words = ['device=cuda', 'hardware=h200', 'steps=1', 'model=gpt-tiny', r'run_dir={tmp_path / 'run'}']\n"
        "code = main(['compare', *words])\n"
        "import torch\n"
        "assert 'runtime._sim' not in sys.modules\n"
        "assert torch._C._get_privateuse1_backend_name() == 'privateuseone'\n"
        "assert code == (2 if not torch.cuda.is_available() else 0), code\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert len(done.stderr.splitlines()) <= 1
    if not torch.cuda.is_available():
        assert "device cuda is not available" in done.stderr
        assert not (tmp_path / "run").exists()


def test_help_is_help(capsys: pytest.CaptureFixture[str]) -> None:
    for flag in ("-h", "--help"):
        assert main([flag]) == 0
    assert capsys.readouterr().out.count("bayplan compare [experiment=NAME]") == 2


def test_pictures_are_the_same_bytes_for_the_same_run(tmp_path: Path) -> None:
    words = ["steps=2", "solver=greedy-swap", "baselines=[unlimited]", *tiny_overrides(tmp_path)]
    for name in ("one", "two"):
        assert main([*words, f"run_dir={tmp_path / name}"]) == 0
    for picture, suffix in itertools.product(("memory", "lanes"), ("svg", "png")):
        one, two = (tmp_path / run / f"{picture}.{suffix}" for run in ("one", "two"))
        assert one.read_bytes() == two.read_bytes()
