"""The ten lines of runtime/README.md run as printed, outside the repository, and under other budgets and solvers."""

import itertools
import re
import sys
from pathlib import Path

import pytest

from runtime.device import use_sim
from solvers.ir.errors import InfeasibleBudget
from solvers.planner import solver_names
from tests.readmes import blocks, run
from tests.soaking import some

(PROGRAM,) = blocks("runtime", "python")


@pytest.mark.timeout(600)
def test_ones_own_model_trains_inside_its_budget(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(PROGRAM, encoding="utf-8")
    lines = run([sys.executable, "own.py"], tmp_path).splitlines()
    losses = [line for line in lines if line.startswith("loss")]
    assert len(losses) == 3
    for line in losses:
        peak, budget = map(int, re.findall(r"(\d+) of (\d+) bytes", line)[0])
        assert 0 < peak <= budget


@pytest.mark.parametrize(
    ("solver", "share"), some(itertools.product(solver_names("swap"), (0.01, 0.5, 1.0, 1.5)), of=3)
)
def test_ten_lines_survive_any_budget_and_solver(solver: str, share: float, capsys: pytest.CaptureFixture[str]) -> None:
    assert PROGRAM.count('planner("milp-swap")') == PROGRAM.count("0.6 *") == 1
    text = PROGRAM.replace('planner("milp-swap")', f'planner("{solver}", limits=Limits(work=5.0, threads=1))')
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
