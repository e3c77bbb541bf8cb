"""What a run is doing right now, for the terminal: a spinner and the clock; nothing at all where stderr is a file."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from experiments.printable import printable
from solvers.ir import Watch


class Stages:
    """The stages of one run; `total` of them."""

    def __init__(self, progress: Progress, total: int | None) -> None:
        self._progress = progress
        self._task = progress.add_task("", total=total)

    @contextmanager
    def stage(self, what: str) -> Iterator[None]:
        """Say what goes on inside."""
        self.say(what)
        yield
        self.advance()

    def advance(self) -> None:
        """One more is done."""
        self._progress.advance(self._task)

    def reach(self, done: int) -> None:
        """So many are done."""
        self._progress.update(self._task, completed=done)

    def expect(self, total: int | None) -> None:
        """Begin anew, with this many stages."""
        self._progress.reset(self._task, total=total)

    def say(self, what: str) -> None:
        """Say what goes on now."""
        self._progress.update(self._task, description=escape(printable(what)))

    def watch(self, what: str) -> Watch:
        """A solver's watch: its incumbent and bound, live; it never stops the solver."""

        def show(incumbent: float | None, bound: float | None, elapsed_s: float) -> bool:
            best = "no plan yet" if incumbent is None else f"{incumbent:,.0f} µs"
            known = "" if bound is None else f", bound {bound:,.0f} µs"
            self.say(f"{what}: {best}{known}")
            return False

        return show


@contextmanager
def stages(total: int | None = None, console: Console | None = None, time_left: bool = False) -> Iterator[Stages]:
    """A live line on stderr while the block runs, perhaps with the time that the rest will take."""
    console = console or Console(stderr=True)
    columns: list[ProgressColumn] = [
        SpinnerColumn(), TextColumn("{task.description}"), BarColumn(24), MofNCompleteColumn(), TimeElapsedColumn(),
    ]  # fmt: skip
    if time_left:
        columns += [TextColumn("left:"), TimeRemainingColumn(elapsed_when_finished=False)]
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield Stages(progress, total)
