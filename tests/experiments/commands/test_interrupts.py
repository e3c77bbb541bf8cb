"""Ctrl-C during a solve, in processes of their own: the first keeps the best plan, the second ends it."""

import json
import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from experiments.commands.interrupts import Interrupts, end_where_asked, until_asked
from experiments.fit.answer import Row
from experiments.fit.swapping import swap_row
from solvers.ir import JointProblem, Limits
from solvers.planner import build_solver
from tests.experiments.commands.console import LLAMA, Outcome, call, start, write_problem

PATIENCE_S = 60.0


def _wait_for(path: Path, process: "subprocess.Popen[str]") -> None:
    ends = time.monotonic() + PATIENCE_S
    while not path.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < ends
        time.sleep(0.02)


def _wait_for_handler(process: "subprocess.Popen[str]") -> None:
    """Until the process catches SIGTERM, which it does only while it solves (Python always catches SIGINT)."""
    ends = time.monotonic() + PATIENCE_S
    while True:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < ends
        status = Path(f"/proc/{process.pid}/status").read_text()
        caught = int(next(line for line in status.splitlines() if line.startswith("SigCgt:")).split()[1], 16)
        if caught >> (signal.SIGTERM - 1) & 1:
            return
        time.sleep(0.02)


def _end(process: "subprocess.Popen[str]") -> Outcome:
    out, err = process.communicate(timeout=PATIENCE_S)
    return Outcome(process.returncode, out, err)


def _slow(folder: Path, *settings: str) -> tuple["subprocess.Popen[str]", Path]:
    problem, begun = write_problem(folder / "p.json"), folder / "begun"
    sets = [word for setting in (f"begun={begun}", "seconds=60", *settings) for word in ("--set", setting)]
    process = start("solve", problem, "--solver", "slow-swap", *sets, "--out", folder / "plan.json", cwd=folder)
    _wait_for(begun, process)
    return process, folder / "plan.json"


def test_the_best_plan_is_kept_written_and_told(tmp_path: Path) -> None:
    for number, name in ((signal.SIGINT, "Ctrl-C"), (signal.SIGTERM, "SIGTERM")):
        folder = tmp_path / name
        folder.mkdir()
        process, plan = _slow(folder)
        process.send_signal(number)
        outcome = _end(process)
        assert outcome.code == 0
        assert outcome.figure("reason") == f"stopped by {name}: the best so far"
        told = f"bayplan: stopped by {name}: the best plan so far is kept, written to {plan}\n"
        assert outcome.err == told
        assert call("check", folder / "p.json", plan).code == 0


def test_before_the_first_plan_that_is_said(tmp_path: Path) -> None:
    process, plan = _slow(tmp_path, "helpless=true")
    process.send_signal(signal.SIGINT)
    outcome = _end(process)
    assert outcome.code == 1
    assert (outcome.figure("status"), outcome.figure("objective")) == ("unknown", "unknown")
    assert outcome.figure("reason") == "stopped by Ctrl-C before there was a plan"
    assert outcome.err == "bayplan: stopped by Ctrl-C before there was a plan\n"
    assert plan.exists()


def test_a_second_one_ends_a_solver_that_does_not_listen(tmp_path: Path) -> None:
    process, plan = _slow(tmp_path, "stubborn=true")
    process.send_signal(signal.SIGINT)
    time.sleep(0.2)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert _end(process) == Outcome(130, "", "bayplan: interrupted\n")
    assert not plan.exists()


def test_a_terminals_ctrl_c_reaches_the_engines_process_too_and_spoils_nothing(tmp_path: Path) -> None:
    """A terminal sends the signal to every process of the group; HiGHS works in a child."""
    plan = tmp_path / "plan.json"
    process = start("solve", LLAMA, "--solver", "milp-swap", "--time-limit", 120, "--out", plan, cwd=tmp_path)
    _wait_for_handler(process)
    time.sleep(1.0)
    os.killpg(process.pid, signal.SIGINT)
    outcome = _end(process)
    assert outcome.code == 0, outcome
    assert "stopped by Ctrl-C" in outcome.figure("reason")
    assert outcome.err.startswith("bayplan: stopped by Ctrl-C: the best plan so far is kept")
    assert call("check", LLAMA, plan).code == 0


def test_one_that_a_solver_caught_is_asked_again_between_two_parts_of_the_work() -> None:
    end_where_asked()
    for patient in (False, True):
        with Interrupts(patient=patient):
            end_where_asked()
            with suppress(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0.01)
            if patient:  # the work itself looks at `asked_by`
                end_where_asked()
            else:
                with pytest.raises(KeyboardInterrupt):
                    end_where_asked()
    end_where_asked()


def _swallows_ctrl_c() -> str:
    """As a solver does: it ends early, and answers."""
    with suppress(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)
    return "short"


def test_of_parts_of_which_one_was_cut_short_those_before_it_are_kept() -> None:
    with Interrupts(patient=False) as interrupts:
        assert until_asked([lambda: "whole", lambda: "too", _swallows_ctrl_c, lambda: "never"]) == ("whole", "too")
        assert until_asked([lambda: "after that"]) == ()
    assert interrupts.asked_by == "Ctrl-C"
    assert until_asked([lambda: "again"]) == ("again",)

    def raises() -> str:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):  # nobody asked in a way that the command would tell of
        until_asked([raises])


def test_pareto_tells_whole_budgets_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, a solver swallowed Ctrl-C, its short answer stood in the table, and the command went on to exit 0."""
    budgets, picture = list[int](), tmp_path / "p.svg"
    picture.write_text("of a whole curve")

    def built(name: str, options: dict[str, object]) -> Any:
        solver = build_solver(name, options)

        def solve(problem: JointProblem, limits: Limits) -> Any:
            budgets.append(problem.budget_bytes)
            if len(set(budgets)) == 3:
                _swallows_ctrl_c()
            return solver.solve(problem, limits)

        return SimpleNamespace(solve=solve)

    monkeypatch.setattr("experiments.joint.pareto.build_solver", built)
    flags = ("--microbatch", 1, "--pipeline", 32, "--stage", 5, "--budgets", 4, "--work", 0.001)
    outcome = call(
        "pareto", "--shape", "llama-3-8b", *flags, "--hardware", "a100-sxm-80", "--json", "--picture", picture
    )
    assert (outcome.code, len(set(budgets))) == (130, 3) and picture.read_text() == "of a whole curve"
    assert (
        outcome.err
        == "bayplan: interrupted by Ctrl-C: what is told was whole until then, 2 of 4 budgets; nothing was drawn\n"
    )
    told = json.loads(outcome.out)
    assert [point["budget_bytes"] for point in told["points"]] == sorted(set(budgets))[:2]
    assert (told["interrupted"], told["rates"], told["lengths"]) == (True, [], [])
    assert not any(name.startswith("swapping_pays") for name in told), "none of it was asked"


def test_fit_tells_the_techniques_that_it_had_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    def cut_short(*given: Any) -> Row:
        _swallows_ctrl_c()
        return swap_row(*given)

    monkeypatch.setattr("experiments.fit.shapes.swap_row", cut_short)
    outcome = call("fit", "--shape", "gpt-300m", "--microbatch", 1, "--hardware", "rtx-3090", "--json")
    assert outcome.code == 130
    judged = "plain, full recomputation, selective recomputation, planned recomputation"
    assert outcome.err == f"bayplan: interrupted by Ctrl-C: judged until then: {judged}\n"
    told = json.loads(outcome.out)
    assert told["interrupted"] and [row["technique"] for row in told["rows"]] == [
        "plain",
        "full",
        "selective",
        "planned",
    ]
