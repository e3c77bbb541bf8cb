"""What the README tells a stranger to type works: its commands and its Python, run outside the repository."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from solvers.planner import solver_names

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
TESTED = re.compile(r"<!-- tested -->\n```(bash|python)\n(.*?)```", re.DOTALL)
BLOCKS = TESTED.findall(README)
SCRIPTS = [text for language, text in BLOCKS if language == "bash"]


def run(command: list[str], folder: Path) -> str:
    """The output of a command that must succeed, with this Python's scripts first on the path."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.timeout(600)
def test_the_commands_lead_from_a_model_to_a_checked_plan(tmp_path: Path) -> None:
    (script,) = [text for text in SCRIPTS if "milp-swap" in text]
    output = run(["bash", "-euo", "pipefail", "-c", script], tmp_path)
    assert "no violations" in output
    assert {path.name for path in tmp_path.iterdir()} >= {
        "graph.json",
        "problem.json",
        "greedy.json",
        "plan.json",
        "trace.json",
    }


@pytest.mark.timeout(600)
def test_recomputation_is_planned_from_a_shape_and_a_cluster(tmp_path: Path) -> None:
    pipeline, files = [text for text in SCRIPTS if "lynx" in text]
    output = run(["bash", "-euo", "pipefail", "-c", pipeline], tmp_path)
    assert "Systems: gpt-7b on lynx-nvlink" in output
    assert "Stages of bayplan" in output
    output = run(["bash", "-euo", "pipefail", "-c", files], tmp_path)
    assert output.count("no violations") == 2
    assert "added up again: it holds" in output
    trace = json.loads((tmp_path / "whole-trace.json").read_text(encoding="utf-8"))
    assert len(trace["traceEvents"]) > 100


@pytest.mark.timeout(600)
def test_a_failure_is_answered_from_a_shape_and_a_cluster(tmp_path: Path) -> None:
    (script,) = [text for text in SCRIPTS if "exact-replan" in text]
    output = run(["bash", "-euo", "pipefail", "-c", script], tmp_path)
    assert output.count("no violations") == 1
    assert "Lives: llama-2-7b on 8 pipelines of 4, 3 times 1 h" in output


@pytest.mark.timeout(600)
def test_chunks_and_blocks_are_laid_out_from_a_shape_and_from_a_step(tmp_path: Path) -> None:
    (script,) = [text for text in SCRIPTS if "exact-layout" in text]
    output = run(["bash", "-euo", "pipefail", "-c", script], tmp_path)
    assert output.count("no violations") == output.count("added up again: it holds") == 2  # of a shape, of a real step
    trace = json.loads((tmp_path / "lanes.json").read_text(encoding="utf-8"))
    assert len(trace["traceEvents"]) > 100


@pytest.mark.timeout(600)
def test_ones_own_model_trains_inside_its_budget(tmp_path: Path) -> None:
    (program,) = [text for language, text in BLOCKS if language == "python" and "SwapExecutor" in text]
    (tmp_path / "own.py").write_text(program, encoding="utf-8")
    lines = run([sys.executable, "own.py"], tmp_path).splitlines()
    losses = [line for line in lines if line.startswith("loss")]
    assert len(losses) == 3
    for line in losses:
        peak, budget = map(int, re.findall(r"(\d+) of (\d+) bytes", line)[0])
        assert 0 < peak <= budget


@pytest.mark.timeout(600)
def test_any_loop_trains_inside_its_budget_by_one_line(tmp_path: Path) -> None:
    (program,) = [text for language, text in BLOCKS if language == "python" and "session(" in text]
    (tmp_path / "loop.py").write_text(program, encoding="utf-8")
    report = run([sys.executable, "loop.py"], tmp_path)
    peak, budget = map(int, re.findall(r"peak +(\d+) bytes .* of a budget of (\d+) bytes", report)[0])
    unswapped = int(re.findall(r"unswapped +(\d+) bytes", report)[0])
    assert peak <= budget < unswapped
    assert "12 iterations, now Stable" in report


def test_make_demo_is_the_command_that_the_readme_explains() -> None:
    planned = run(["make", "-n", "demo"], ROOT)
    assert "bayplan compare experiment=demo" in planned


def test_links_lead_to_files_and_no_placeholder_is_left() -> None:
    for target in re.findall(r"\]\((?!https?://)([^)#]+)\)", README):
        assert (ROOT / target).exists(), target
    assert not re.search(r"\b[A-Z]+-HERE\b", README)


def test_the_tables_shown_are_those_of_the_kept_results() -> None:
    shown = re.findall(r"<!-- (experiments/results/\S+) -->\n(.*?)\n<!-- end of \1 -->", README, re.DOTALL)
    assert {name for name, _ in shown} == {
        "experiments/results/demo/table.md",
        "experiments/results/demo_sweep/table.md",
        "experiments/results/ft_32/table.md",
        "experiments/results/lynx/table.md",
        "experiments/results/stability/table.md",
        "experiments/results/tables/lynx/lynx-figure-14.md",
    }
    for name, text in shown:
        assert text.strip() in (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("solver", solver_names("swap"))
@pytest.mark.parametrize("share", [0.01, 0.5, 1.0, 1.5])
def test_ten_lines_survive_any_budget_and_solver(solver: str, share: float, capsys: pytest.CaptureFixture[str]) -> None:
    from runtime.device import use_sim
    from solvers.ir.errors import InfeasibleBudget

    (text,) = [text for language, text in BLOCKS if language == "python" and "SwapExecutor" in text]
    assert text.count('planner("milp-swap")') == text.count("0.6 *") == 1
    text = text.replace('planner("milp-swap")', f'planner("{solver}", limits=Limits(work=5.0, threads=1))')
    text = "from solvers.ir.solution import Limits\n" + text.replace("0.6 *", f"{share} *")
    try:
        exec(compile(text, "README.md", "exec"), {})
    except InfeasibleBudget as error:
        assert share < 0.5
        assert re.search(r"the budget is \d+ bytes, the least feasible one exactly \d+ bytes: raise it", str(error))
        return
    finally:
        use_sim()
    assert share >= 0.5
    printed = capsys.readouterr().out
    peaks = [tuple(map(int, found)) for found in re.findall(r"peak (\d+) of (\d+) bytes", printed)]
    assert len(peaks) == 3 and all(peak <= budget for peak, budget in peaks)
