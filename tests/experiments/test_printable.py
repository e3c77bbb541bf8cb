"""No name that a file or a model gives reaches a terminal as a command."""

import contextlib
import io
import json
import unicodedata
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.console import Console

from experiments.commands.show import print_figures, print_table
from experiments.printable import COMMANDING, printable
from experiments.tables import Table, say, to_terminal
from tests.experiments.commands.console import call, refused, write_problem

EVIL = "\x1b]0;owned\x07\x9b31m\u202ename\x00"
TAME = r"\x1b]0;owned\x07\x9b31m\u202ename\x00"


def commanding(text: str) -> set[str]:
    return {letter for letter in text if unicodedata.category(letter) in COMMANDING and letter != "\n"}


@given(st.text())
@example(EVIL)
def test_what_is_printed_commands_nothing(text: str) -> None:
    assert not commanding(printable(text)) and "\n" not in printable(text)
    assert printable(text) == text or commanding(text) or "\n" in text


def test_other_letters_stay() -> None:
    text = "µs – σ′ × 模型 é \u00a0 |"
    assert printable(text) == text
    assert printable(EVIL) == TAME


@pytest.mark.parametrize("terminal", [False, True])
def test_tables_and_figures_escape_names(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    out.isatty = lambda: terminal  # type: ignore[method-assign]
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    with contextlib.redirect_stdout(out):
        print_figures(EVIL, [("objective", EVIL)])
        print_table("solvers", ("solver", "what"), [("greedy", EVIL)])
    console = Console(file=out, width=200, color_system=None)
    to_terminal(console, [Table(EVIL, ("policy", EVIL), ((EVIL, "1"),), f"a note\n{EVIL}")])
    say(console, f"{EVIL}: a reason")
    assert not commanding(out.getvalue())
    assert out.getvalue().count("owned") == 8


def test_an_error_sentence_escapes_the_name_of_a_file() -> None:
    said = refused(call("check", f"{EVIL[:-1]}.json", "plan.json"))
    assert not commanding(said)
    assert "owned" in said


def test_a_command_escapes_a_problems_name(tmp_path: Path) -> None:
    path = write_problem(tmp_path / "p.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), "name": EVIL}))
    solved = call("solve", path, "--solver", "greedy-swap")
    assert solved.code == 0
    assert TAME in solved.out
    assert not commanding(solved.out + solved.err)
