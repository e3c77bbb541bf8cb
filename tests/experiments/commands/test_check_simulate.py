"""`bayplan check` and `bayplan simulate` on plans of a problem that was worked out by hand."""

import dataclasses
import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from solvers.check.swap.small import MOST_DECISIONS
from solvers.ir import SwapProblem
from solvers.ir.codec import problem_to_raw, write_json
from solvers.kinds import KINDS
from tests.contract import contract_of
from tests.experiments.commands.console import call, refused, tiny_problem, write_problem


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


def test_of_a_plan_that_is_none_of_an_infeasible_problem_no_bound_is_told(problem: Path, plan: Path) -> None:
    """The plan of 150 bytes in a problem of 100: nothing is weighed, which is not a bound of 0 µs."""
    small = write_problem(problem.with_name("small.json"), budget_bytes=100)
    outcome = call("check", small, plan)
    assert outcome.code == 1
    assert outcome.figure("bound, proven") == "none: claims are weighed of valid plans only"


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
    many, path = tmp_path / "many.json", tmp_path / "many-plan.json"
    write_json(many, problem_to_raw(_many_decisions()))
    assert call("solve", many, "--solver", "milp-swap", "--out", path).code == 0
    proof = call("check", many, path)
    assert (proof.code, proof.figure("claim")) == (0, "optimality: claimed, not proven")
    assert call("check", "--strict", many, path).code == 1
    told = json.loads(call("check", "--json", many, path).out)
    assert (told["claim"], told["proven"]) == ("optimality", False)
    _edit(path, bound_us=None, status="feasible")
    nothing = call("check", "--strict", many, path)
    assert (nothing.code, nothing.figure("claim")) == (0, "nothing is claimed")


def test_strict_takes_a_claim_that_the_judge_proves(tmp_path: Path) -> None:
    problem, path = tmp_path / "partition.json", tmp_path / "plan.json"
    write_json(problem, problem_to_raw(contract_of("partition").tiny(0)))
    assert call("solve", problem, "--solver", "dp", "--out", path).code == 0
    strict = call("check", "--strict", problem, path)
    assert (strict.code, strict.figure("claim")) == (0, "optimality: proven")
    told = json.loads(call("check", "--json", problem, path).out)
    assert (told["claim"], told["proven"]) == ("optimality", True)


def _many_decisions() -> SwapProblem:
    """The tiny problem with seven more tensors of one byte: 7! orders alone are more than the judge tries."""
    tiny = tiny_problem()
    more = tuple(replace(tiny.tensors[0], id=f"small {number}", bytes=1) for number in range(7))
    assert math.factorial(len(more)) > MOST_DECISIONS
    memory = tuple(size + len(more) for size in tiny.memory_bytes)
    return replace(
        tiny, tensors=(*tiny.tensors, *more), memory_bytes=memory, budget_bytes=tiny.budget_bytes + len(more)
    )


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
