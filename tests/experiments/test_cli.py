"""How the command begins: Ctrl-C at any moment is one line and 130, never a traceback."""

import subprocess
import sys

import pytest

from experiments import cli
from tests.experiments.commands.console import ROOT

INTERRUPTING = """
import builtins, sys
taken = builtins.__import__
def interrupted(name, *rest):
    if name == {name!r}:
        raise KeyboardInterrupt
    return taken(name, *rest)
builtins.__import__ = interrupted
from experiments.cli import main
sys.exit(main(["--version"]))
"""


@pytest.mark.parametrize("name", ["experiments.command_line", "click", "solvers.ir.errors", "importlib.metadata"])
def test_ctrl_c_during_an_import_is_one_line(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTING.format(name=name)], cwd=ROOT, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "bayplan: interrupted\n")


def test_it_begins_without_importing_anything_of_ours() -> None:
    code = "import sys; import experiments.cli; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    ours = {name for name in done.stdout.split() if name.partition(".")[0] in ("experiments", "solvers", "runtime")}
    assert ours == {"experiments", "experiments.cli"}
    assert "click" not in done.stdout.split()


def test_the_command_lines_exit_code_is_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("bayplan")
    assert cli.main(["slove"]) == 2
