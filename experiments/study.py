"""What `bayplan compare` asks of a kind of experiment, alone and as a cell of a sweep; each kind has one `STUDY`."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeVar

from experiments.compose import Root
from experiments.grid import DONE, AnyComposed, Cell, Grid, error_row
from experiments.run_directory import CONFIG, RunDirectory
from experiments.tables import Table
from solvers.ir import BayplanError, Row

C = TypeVar("C", bound=AnyComposed)
Composed = TypeVar("Composed", bound=AnyComposed, contravariant=True)


class Ran(NamedTuple):
    """What an experiment came to: its rows, and what is shown of them; `spent` begins the last line."""

    rows: list[Row]
    tables: Sequence[Table]
    lines: Sequence[str] = ()
    spent: str = ""


class Study(Protocol[C]):
    """One kind of experiment. Everything that it finds is written to the run's folder before it is shown."""

    usage: str
    root: Root

    def read(self, overrides: Sequence[str]) -> C:
        """The settings that the overrides ask for; raises `InvalidInput` with one sentence for any fault."""
        ...

    def require(self, composed: C) -> None:
        """Refuse settings that cannot be answered (`InvalidInput`), before anything is written."""
        ...

    def run(self, composed: C, directory: RunDirectory) -> Ran:
        """Run it alone, in the foreground."""
        ...

    def exit_code(self, rows: Sequence[Row]) -> int:
        """0, or 1 where the answer is no."""
        ...

    def in_order(self, cells: Sequence[Cell[C]]) -> Sequence[Cell[C]]:
        """The cells of a sweep in the order in which they are run."""
        ...

    def cell_rows(self, cell: Cell[C], cells: Sequence[Cell[C]]) -> list[Row]:
        """One cell's rows, or an earlier run's where its settings were the same; a fault of its input is a row, too."""
        ...

    def sweep_tables(self, rows: Sequence[Row], axes: Sequence[str]) -> list[Table]:
        """What a sweep's rows say together."""
        ...

    def draw_sweep(self, grid: Grid[C], rows: Sequence[Row]) -> None:
        """Write the pictures of a sweep to its folder."""
        ...

    def sweep_lines(self, rows: Sequence[Row]) -> list[str]:
        """What cells have to say beside the tables."""
        ...

    def sweep_exit_code(self, rows: Sequence[Row]) -> int:
        """0: a sweep with cells that have no plan is done; 1 where a plan broke its promise."""
        ...


class Planned(Protocol[Composed]):
    """What plans or simulates a cell of a sweep in this process."""

    def run_cell(self, composed: Composed, directory: RunDirectory) -> list[Row]:
        """The cell's rows, with everything written to its folder."""
        ...


def rows_in_process(study: Planned[C], cell: Cell[C]) -> list[Row]:
    """A cell's rows, known or found now; a fault of the cell's input is a row."""
    known = cell.known_rows()
    if known is not None:
        return known
    (cell.folder.path / DONE).unlink(missing_ok=True)  # an earlier run's, with other settings
    cell.folder.text(CONFIG, cell.composed.yaml)
    try:
        rows = study.run_cell(cell.composed, cell.folder)
    except BayplanError as error:
        rows = [error_row(cell.composed.settings.name, str(error))]
        cell.folder.rows(rows)
        return rows
    cell.folder.text(DONE, "")
    return rows


def error_lines(rows: Sequence[Row]) -> list[str]:
    """The cells at fault, a line each."""
    return [f"{row.asked}: {row.reason}" for row in rows if row.outcome == "error"]
