"""What the README tells a stranger to type works: its commands and its Python, run outside the repository."""

import json
import re
import sys
from pathlib import Path

import pytest

from tests.readmes import ROOT, blocks, run, shell

README = (ROOT / "README.md").read_text(encoding="utf-8")
MAKE, COMMANDS = blocks(".", "bash")
(SESSION,) = blocks(".", "python")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_commands_lead_from_a_model_to_a_checked_plan(tmp_path: Path) -> None:
    output = shell(COMMANDS, tmp_path)
    assert "no violations" in output
    assert {path.name for path in tmp_path.iterdir()} >= {
        "graph.json",
        "problem.json",
        "greedy.json",
        "plan.json",
        "trace.json",
    }


@pytest.mark.timeout(600)
def test_any_loop_trains_inside_its_budget_by_one_line(tmp_path: Path) -> None:
    (tmp_path / "loop.py").write_text(SESSION, encoding="utf-8")
    report = run([sys.executable, "loop.py"], tmp_path)
    peak, budget = map(int, re.findall(r"peak +(\d+) bytes .* of a budget of (\d+) bytes", report)[0])
    unswapped = int(re.findall(r"unswapped +(\d+) bytes", report)[0])
    assert peak <= budget < unswapped
    assert "12 iterations, now Stable" in report


def test_the_two_commands_are_those_of_the_makefile() -> None:
    """Not run here, as one of them runs this test: what they would run is what the page says."""
    assert MAKE.split("\n") == ["make demo", "make test", ""]
    assert "bayplan compare experiment=demo" in run(["make", "-n", "demo"], ROOT)
    assert "-m pytest" in run(["make", "-n", "test"], ROOT)


def test_it_is_short_and_no_placeholder_is_left() -> None:
    assert len(README.splitlines()) <= 150
    assert not re.search(r"\b[A-Z]+-HERE\b", README)


def test_its_headline_of_the_demo_is_the_kept_result() -> None:
    lines = (ROOT / "experiments" / "results" / "demo" / "rows.jsonl").read_text(encoding="utf-8").splitlines()
    figures = {row["asked"]["policy"]: row["figures"] for row in map(json.loads, lines)}
    ratios = ", ".join(
        f"{figures[policy]['ratio']:.3f}" for policy in ("recompute", "greedy-swap", "milp-swap", "joint")
    )
    assert f"recompute, greedy-swap, milp-swap, joint | {ratios} × |" in README
    objective, bound, base = (figures["milp-swap"][f"{name}_us"] for name in ("objective", "bound", "base"))
    gap, overhead = (objective - bound) / objective, (objective - bound) / (objective - base)
    assert f"milp-swap's gap {100 * gap:.2f} %, overhead gap {100 * overhead:.1f} %" in README
