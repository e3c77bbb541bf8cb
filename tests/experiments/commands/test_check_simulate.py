"""`bayplan check` and `bayplan simulate` on plans of a problem that was worked out by hand."""

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import pytest

from solvers.kinds import KINDS
from tests.experiments.commands.console import call, refused, write_problem


@pytest.fixture
def problem(tmp_path: Path) -> Path:
    return write_problem(tmp_path / "p.json")


@pytest.fixture
def plan(problem: Path) -> Path:
    path = problem.with_name("plan.json")
    assert call("solve", problem, "--solver", "milp-swap", "--out", path).code == 0
    return path


def _edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_a_true_plan_has_no_violations(problem: Path, plan: Path) -> None:
    outcome = call("check", problem, plan)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.figure("verdict") == "no violations"
    assert outcome.figure("objective, recomputed") == "80 µs"
    assert "violation:" not in outcome.out


def test_each_violation_is_a_line(problem: Path, plan: Path) -> None:
    _edit(plan, objective_us=70, bound_us=90)
    outcome = call("check", problem, plan)
    assert (outcome.code, outcome.err) == (1, "")
    said = [line for line in outcome.out.splitlines() if line.startswith("violation: ")]
    assert len(said) == 2
    assert "objective_us is 70, but the decision takes 80" in said[0]
    assert "above the objective 80" in said[1]
    assert outcome.figure("verdict") == "violations: 2"
    assert outcome.figure("objective, recomputed") == "80 µs"


def test_another_problems_plan_is_a_violation(problem: Path, plan: Path) -> None:
    problem.write_text(problem.read_text().replace('"tiny"', '"tiny too"'))
    outcome = call("check", problem, plan)
    assert outcome.code == 1
    assert "another problem's" in outcome.out
    _edit(plan, problem_sha256=None)
    assert call("check", problem, plan).code == 0


def believe(problem: Any, certificate: Any) -> tuple[list[str], float]:
    """Adds nothing up."""
    return [], 80.0


def test_a_certificate_holds_does_not_or_is_another_problems(
    problem: Path, plan: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _edit(plan, certificate={"form": "trust me"})
    outcome = call("check", problem, plan)
    assert outcome.code == 1
    assert outcome.figure("certificate") == "does not hold"
    form = {"trust me": f"{__name__}:believe"}
    monkeypatch.setitem(KINDS, "swap", dataclasses.replace(KINDS["swap"], certificates=form))
    assert call("check", problem, plan).figure("certificate") == "added up again: it holds"
    _edit(plan, problem_sha256="0" * 64)
    assert call("check", problem, plan).figure("certificate") == "not judged"


def test_an_infeasible_answer_has_no_decision_to_judge(tmp_path: Path) -> None:
    problem, plan = write_problem(tmp_path / "p.json", budget_bytes=100), tmp_path / "plan.json"
    call("solve", problem, "--solver", "greedy-swap", "--out", plan)
    for command in ("check", "simulate"):
        outcome = call(command, problem, plan)
        assert outcome.code == 1
        assert "there is no decision to judge" in outcome.out


def test_simulate_tells_makespan_peak_and_stalls(problem: Path, plan: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    outcome = call("simulate", problem, plan, "--trace", trace)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.figure("how") == f"simulated from {problem}, kind swap"
    assert outcome.figure("makespan") == "80 µs"
    assert outcome.figure("base") == "60 µs"
    assert outcome.figure("peak") == "150 bytes at 10 µs"
    assert outcome.figure("budget") == "150 bytes"
    # Op 2 waits 10 us for the swap-out (20 to 30), op 5 another 10 us for the swap-in (60 to 70).
    assert outcome.figure("stall, swap_out") == "10 µs"
    assert outcome.figure("stall, swap_in") == "10 µs"
    events = json.loads(trace.read_text())["traceEvents"]
    assert {event["ph"] for event in events} >= {"X", "M", "C"}
    assert max(event["ts"] + event["dur"] for event in events if event["ph"] == "X") == 80


def test_simulate_refuses_a_plan_that_breaks_its_problem(problem: Path, plan: Path, tmp_path: Path) -> None:
    _edit(plan, decision={"swaps": []}, objective_us=60, bound_us=60)
    trace = tmp_path / "trace.json"
    outcome = call("simulate", problem, plan, "--trace", trace)
    assert outcome.code == 1
    assert outcome.out.startswith("violation: ")
    assert not trace.exists()


def test_a_trace_never_writes_over_what_it_draws(problem: Path, plan: Path) -> None:
    before = plan.read_text()
    assert "would write over the input" in refused(call("simulate", problem, plan, "--trace", plan))
    assert plan.read_text() == before


def test_a_claim_that_is_not_proven_is_said_to_be_and_strict_refuses_it(tmp_path: Path) -> None:
    tight = write_problem(tmp_path / "tight.json")
    path = tmp_path / "tight-plan.json"
    assert call("solve", tight, "--solver", "milp-swap", "--out", path).code == 0
    proof = call("check", tight, path)
    assert proof.code == 0
    proven = proof.figure("claim") == "optimality: proven"
    assert proven or proof.figure("claim") == "optimality: claimed, not proven"
    assert call("check", "--strict", tight, path).code == (0 if proven else 1)
    told = json.loads(call("check", "--json", tight, path).out)
    assert (told["claim"], told["proven"]) == ("optimality", proven)
    _edit(path, bound_us=None, status="feasible")
    nothing = call("check", "--strict", tight, path)
    assert (nothing.code, nothing.figure("claim")) == (0, "nothing is claimed")


def test_a_plan_s_text_commands_no_terminal_and_is_cut(problem: Path, plan: Path) -> None:
    _edit(plan, problem_sha256="\x1b[31mred\x9b" + "A" * 5000)
    for flags in ((), ("--json",)):
        outcome = call("check", *flags, problem, plan)
        assert outcome.code == 1
        assert "\x1b" not in outcome.out
        assert "\x9b" not in outcome.out
        assert "A" * 150 in outcome.out
        assert "A" * 250 not in outcome.out


def test_what_is_no_regular_file_is_refused_at_once(problem: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)  # reading it would wait for a writer
    assert "it is no regular file" in refused(call("check", problem, pipe))
    assert "it is no regular file" in refused(call("check", "/dev/zero", problem))
