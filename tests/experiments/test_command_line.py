"""The frame around all commands: help, names, faults, and what is imported when."""

import importlib
import subprocess
import sys
import types
from pathlib import Path

import click
import pytest

from experiments import command_line
from solvers.ir import BayplanError
from tests.experiments.commands.console import LLAMA, ROOT, call, refused, write_problem
from tests.experiments.commands.fakes import FAKES


def test_help_lists_every_command_and_each_explains_itself() -> None:
    outcome = call("--help")
    assert outcome.code == 0
    assert "70 a fault of Bayplan's own; 130 ended by Ctrl-C" in " ".join(outcome.out.split())
    for name in command_line.COMMANDS:
        assert f"\n  {name} " in outcome.out
    for name in ("profile", "calibrate", "make", "solve", "check", "simulate", "solvers"):
        explained = call(name, "--help")
        assert explained.code == 0
        assert explained.out.startswith(f"Usage: bayplan {name}")
        assert "--help" in explained.out
    assert "KiB MiB GiB TiB: powers of 1024" in call("make", "--help").out.replace("\n ", "").replace("  ", " ")


def test_every_listed_command_exists_under_its_name() -> None:
    for name in command_line.COMMANDS:
        assert importlib.import_module(f"experiments.commands.{name}").command.name == name


def test_the_version() -> None:
    outcome = call("--version")
    assert outcome.code == 0
    assert outcome.out.startswith("bayplan")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["slove"], "there is no command 'slove': did you mean 'solve'?"),
        (["SOLVE"], "there is no command 'SOLVE': did you mean 'solve'?"),
        (["xyzzy"], "there is no command 'xyzzy': choose of calibrate, check, compare"),
        ([], "no command is given: choose of profile, calibrate, make"),
        (["--hlep"], "there is no flag '--hlep': did you mean '--help'?"),
        (["check"], "missing argument 'PROBLEM': see bayplan check --help"),
        (["check", "--quiet"], "there is no flag '--quiet': choose of --counter-plan, --counter-solver"),
        (["new\nline"], "there is no command 'new\\nline'"),
    ],
)
def test_wrong_command_lines_get_one_line(arguments: list[str], sentence: str) -> None:
    assert sentence in refused(call(*arguments))


def test_a_fault_of_ours_is_one_line_that_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(importlib.import_module("solvers.planner").SOLVERS, "broken-swap", FAKES["broken-swap"])
    problem, plan = write_problem(tmp_path / "p.json"), tmp_path / "plan.json"
    said = refused(call("solve", problem, "--solver", "broken-swap", "--out", plan), code=70)
    assert "a fault of Bayplan's own at tests.experiments.commands.fakes:" in said
    assert "(RuntimeError: first line second line)" in said
    assert not plan.exists()
    monkeypatch.setenv(command_line.TRACEBACK, "1")
    with pytest.raises(RuntimeError, match="first line"):
        call("solve", problem, "--solver", "broken-swap")


@pytest.mark.parametrize("name", ["compare", "train"])
def test_hydras_commands_get_their_arguments_untouched(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []
    module = types.ModuleType(f"experiments.{name}")
    monkeypatch.setitem(sys.modules, module.__name__, module)

    def note(argv: list[str]) -> int:
        seen.append(argv)
        return 1

    module.main = note  # type: ignore[attr-defined]
    arguments = ["experiment=demo", "-m", "--help", "+x=1", "--", "a b"]
    assert call(name, *arguments).code == 1
    assert seen == [arguments]

    def fail(argv: list[str]) -> int:
        raise BayplanError("the world ended:\nstart another")

    module.main = fail  # type: ignore[attr-defined]
    assert refused(call(name), code=1) == "the world ended: start another"

    def interrupted(argv: list[str]) -> int:
        try:
            raise KeyboardInterrupt
        finally:
            raise UnboundLocalError("a library's finally that was not reached in order")

    module.main = interrupted  # type: ignore[attr-defined]
    assert refused(call(name), code=130) == "interrupted"


def _imported_by(script: str) -> set[str]:
    code = f"import sys; from experiments.cli import main; {script}; print('|' + ' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.rpartition("|")[2].split())


def test_help_imports_nothing_heavy() -> None:
    heavy = {"torch", "hydra", "omegaconf", "numpy", "scipy", "ortools", "highspy", "gurobipy", "rich", "matplotlib"}
    assert not heavy & _imported_by("main(['--help'])")


@pytest.mark.parametrize("name", ["compare", "train", "make", "profile", "fit", "table"])
def test_help_of_a_command_waits_for_no_large_library(name: str) -> None:
    assert not {"torch", "scipy", "matplotlib", "ortools", "highspy"} & _imported_by(f"main([{name!r}, '--help'])")


def test_solvers_and_solve_never_import_torch_or_hydra(tmp_path: Path) -> None:
    forbidden = {"torch", "hydra", "omegaconf", "matplotlib"}
    assert not forbidden & _imported_by("main(['solvers'])")
    solve = f"assert main(['solve', {str(LLAMA)!r}, '--solver', 'milp-swap', '--time-limit', '1']) == 0"
    assert not forbidden & _imported_by(solve)


def test_whoever_stops_reading_gets_no_other_answer(tmp_path: Path) -> None:
    """As in `bayplan check … | head`, in a shell that asks for the exit code all the same."""
    problem = write_problem(tmp_path / "problem.json")
    missing = tmp_path / "none.json"
    missing.write_text(
        '{"format": "bayplan-plan/1", "kind": "swap", "problem_sha256": null, "solver": "x", "engine": null, "seed": 0,'
        ' "status": "unknown", "objective_us": null, "bound_us": null, "base_us": null, "least_budget_bytes": null,'
        ' "solve_time_s": 0.0, "reason": "none", "certificate": null, "decision": null}'
    )
    line = f"{sys.executable} -m experiments.cli check {problem} {missing} 2>/dev/null | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", line], cwd=ROOT, check=False, timeout=120)
    assert done.returncode in (1, 141)


def test_an_answer_that_nobody_reads_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    line = f"{sys.executable} -m experiments.cli solvers >&-"
    assert subprocess.run(["bash", "-c", line], cwd=ROOT, check=False, timeout=120).returncode == 0

    @click.command()
    def ending() -> None:  # as rich does where its reader has gone
        try:
            raise BrokenPipeError
        except BrokenPipeError:
            raise SystemExit(1)  # noqa: B904

    monkeypatch.setattr(sys, "stdout", sys.stdout)
    assert command_line.run(ending, "ending", []) == 141


def test_ctrl_c_in_a_callback_ends_the_command(tmp_path: Path) -> None:
    """Python only tells of what a weak reference's callback raises, and goes on."""
    program = (
        "import signal, sys, time, weakref\nfrom experiments import command_line\nimport click\n"
        "class Held: pass\n"
        "def callback(_): signal.raise_signal(signal.SIGINT); [None for _ in range(9)]\n"
        "@click.command()\ndef waiting():\n"
        "    held = Held(); kept = weakref.ref(held, callback); del held; time.sleep(1); print('went on')\n"
        "sys.exit(command_line.run(waiting, 'waiting', []))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "bayplan: interrupted\n")
