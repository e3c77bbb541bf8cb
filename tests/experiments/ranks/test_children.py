"""No process is left behind: not by one that is done, nor by one that fails, is interrupted, or is killed."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from experiments.ranks.children import PARENT, run_children
from tests.soaking import in_soak

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks processes up as Linux keeps them")
WAIT_S = 60.0
CHILD = """
import os, pathlib, sys, time
from experiments.ranks.children import end_with_parent
end_with_parent()
pathlib.Path(sys.argv[1], os.environ["NAME"]).write_text(str(os.getpid()))
time.sleep(600)
"""
PARENT_OF_TWO = """
import pathlib, sys
from experiments.commands.interrupts import Interrupts
from experiments.ranks.children import run_children
folder = pathlib.Path(sys.argv[1])
with Interrupts(patient=False):
    command = [sys.executable, "-c", sys.argv[2], str(folder)]
    run_children(command, [{"NAME": name} for name in "ab"], [folder / "said-a", folder / "said-b"])
"""


def alive(pid: int) -> bool:
    """Whether a process runs still; one that nobody has asked about its end does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def until(true: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < end, f"{what} for {WAIT_S:g} s"
        time.sleep(0.02)


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_children_end_with_the_one_that_started_them(number: signal.Signals, tmp_path: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT_OF_TWO, str(tmp_path), CHILD], env=environment(), cwd=ROOT,
        stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    places = [tmp_path / name for name in "ab"]
    until(lambda: all(place.exists() and place.read_text() for place in places), "children did not begin")
    children = [int(place.read_text()) for place in places]
    assert all(map(alive, children))
    parent.send_signal(number)
    assert parent.wait(WAIT_S) != 0
    until(lambda: not any(map(alive, children)), f"children went on after {number.name}")


def test_a_child_whose_parent_was_gone_before_it_asked_ends(tmp_path: Path) -> None:
    """The system tells of ends from then on only."""
    orphan = {**environment(), PARENT: "1", "NAME": "a"}
    ended = subprocess.run([sys.executable, "-c", CHILD, str(tmp_path)], env=orphan, cwd=ROOT, check=False)
    assert ended.returncode == 1
    assert not (tmp_path / "a").exists()


def test_codes_and_words_come_back_by_child(tmp_path: Path) -> None:
    code = "import os, sys; print('I am', os.environ['NAME'], file=sys.stderr); sys.exit(int(os.environ['CODE']))"
    said = [tmp_path / name for name in "ab"]
    environments = [{"NAME": "first", "CODE": "0"}, {"NAME": "second", "CODE": "3"}]
    assert run_children([sys.executable, "-c", code], environments, said) == [0, 3]
    assert [place.read_text() for place in said] == ["I am first\n", "I am second\n"]


def children_of(pid: int) -> list[int]:
    """The processes that a process's first thread has started."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.slow
@pytest.mark.skipif(not Path(f"/proc/self/task/{os.getpid()}/children").exists(), reason="the kernel lists no children")
@pytest.mark.parametrize(("number", "code"), [in_soak(signal.SIGTERM, 130), (signal.SIGKILL, -signal.SIGKILL)])
def test_the_command_leaves_no_rank_behind(number: signal.Signals, code: int, tmp_path: Path) -> None:
    words = ["experiment=ranks", "ranks=2", "steps=10000", "carrier=processes", "plots=false", "check=false"]
    out = tmp_path / "run"
    command = subprocess.Popen(
        [sys.executable, "-m", "experiments.cli", "train", *words, f"run_dir={out}"], env=environment(), cwd=ROOT,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    until(lambda: len(children_of(command.pid)) == 2, "no ranks began")
    ranks = children_of(command.pid)
    command.send_signal(number)
    _, said = command.communicate(timeout=WAIT_S)
    assert command.returncode == code
    if number == signal.SIGTERM:
        assert said.splitlines()[-1] == "bayplan: interrupted" and not out.exists()
    until(lambda: not any(map(alive, ranks)), f"ranks went on after {number.name}")
