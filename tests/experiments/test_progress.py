"""Progress is for terminals only."""

import io

from rich.console import Console

from experiments.progress import stages


def test_a_file_sees_nothing() -> None:
    console = Console(file=io.StringIO(), force_terminal=False)
    with stages(2, console) as shown, shown.stage("work"):
        shown.say("more work")
    assert console.file.getvalue() == ""  # type: ignore[attr-defined]


def test_a_terminal_sees_stages_and_a_solvers_progress() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    with stages(2, console) as shown, shown.stage("solving [a]"):
        watch = shown.watch("solving [a]")
        assert watch(None, None, 0.1) is False
        assert watch(8040.0, 7936.5, 0.2) is False
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "solving [a]: 8,040 µs, bound 7,936 µs" in text


def test_the_time_that_is_left_is_told_where_it_is_asked_for() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    with stages(2, console, time_left=True) as shown:
        shown.reach(1)
    assert "left:" in console.file.getvalue()  # type: ignore[attr-defined]
