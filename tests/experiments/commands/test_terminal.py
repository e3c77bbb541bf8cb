"""What a person at a terminal sees, through a pseudo-terminal."""

import os
import pty
from pathlib import Path

import pytest

from tests.experiments.commands.console import start, write_problem


def _read_all(terminal: int) -> str:
    parts = []
    while True:
        try:
            part = os.read(terminal, 65536)
        except OSError:  # Linux: the other side is closed
            break
        if not part:
            break
        parts.append(part)
    return b"".join(parts).decode()


def test_a_long_solve_shows_its_progress_and_a_drawn_table(tmp_path: Path) -> None:
    terminal, other_side = pty.openpty()
    problem = write_problem(tmp_path / "p.json")
    arguments = ["solve", problem, "--solver", "slow-swap", "--set", "seconds=3"]
    process = start(*arguments, cwd=tmp_path, stdout=other_side, stderr=other_side)
    os.close(other_side)
    seen = _read_all(terminal)
    assert process.wait(timeout=60) == 0
    os.close(terminal)
    assert "slow-swap: incumbent 80 µs, bound 60 µs, gap 25 %" in seen
    assert "│" in seen
    assert "feasible" in seen


def test_elsewhere_there_is_no_progress_and_no_drawing(tmp_path: Path) -> None:
    problem = write_problem(tmp_path / "p.json")
    arguments = ["solve", problem, "--solver", "slow-swap", "--set", "seconds=2.5"]
    process = start(*arguments, cwd=tmp_path)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert all(character.isprintable() or character == "\n" for character in out)
    assert "│" not in out


def test_a_reader_that_leaves_is_no_fault(tmp_path: Path) -> None:
    process = start("solvers", cwd=tmp_path)
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == ""
    assert process.wait(timeout=60) == 141  # as of any program whose reader leaves: its answer was not read


def test_a_full_disk_behind_stdout_is_one_sentence(tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        process = start("solvers", cwd=tmp_path, stdout=full)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert err.startswith("bayplan: the system refused")
    assert len(err.splitlines()) == 1


def test_a_terminal_without_unicode_still_gets_its_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    process = start("solve", write_problem(tmp_path / "p.json"), "--solver", "greedy-swap", cwd=tmp_path)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert "80 \\xb5s" in out
