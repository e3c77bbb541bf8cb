"""The READMEs of the repository, their fenced blocks, and a shell to run these in."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("solvers", "runtime", "experiments", "csrc", "conf", "tests")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def pages() -> list[Path]:
    """Every README, and the other pages that people read; pages that programs write are left out."""
    found = [*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in (ROOT / folder).rglob("*.md"))]
    return sorted(page for page in found if not _is_written_by_a_program(page))


def _is_written_by_a_program(page: Path) -> bool:
    """Tables of results, and the results of the sweep over PyTorch's operators (`tests.csrc.sim.opinfo`)."""
    results = ROOT / "experiments" / "results"
    return results in page.parents and (page.name != "README.md" or page.parent.name == "opinfo")


def blocks(folder: str, language: str) -> list[str]:
    """The fenced blocks of this language in the README of a folder, in order."""
    page = (ROOT / folder / "README.md").read_text(encoding="utf-8")
    return [text for found, text in FENCE.findall(page) if found == language]


def with_less_work(commands: str, written: str, used: str) -> str:
    """The commands with a smaller limit of a solver's work: they do the same, and a test need not wait for a proof."""
    assert commands.count(f"--work {written} ") == 1
    return commands.replace(f"--work {written} ", f"--work {used} ")


def run(command: list[str], folder: Path) -> str:
    """The output of a command that must succeed, with this Python's scripts first on the path."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def shell(script: str, folder: Path) -> str:
    """The output of a shell script, all of whose commands must succeed."""
    return run(["bash", "-euo", "pipefail", "-c", script], folder)
