"""What `bayplan compare` asks of a kind of experiment, alone and as a cell of a sweep; each kind has one `STUDY`."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeVar

from experiments.compose import Root
from experiments.grid import AnyComposed, Cell, Grid
from experiments.run_directory import RunDirectory
from experiments.tables import Table
from solvers.ir import BayplanError, Row

C = TypeVar("C", bound=AnyComposed)


class CellFault(BayplanError):
    """A cell that came to nothing, and the row that says so."""

    def __init__(self, row: Row) -> None:
        super().__init__(str(row.reason))
        self.row = row


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

    def composed(self, settings: object, yaml: str) -> C:
        """Judged settings (`experiments.compose.judge`) as this kind holds them."""
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

    def run_cell(self, cell: Cell[C]) -> list[Row]:
        """One cell's rows; a fault of its input raises (`BayplanError`), what else it came to is a `CellFault`."""
        ...

    def objective(self, rows: Sequence[Row]) -> float:
        """What an optimizing sweeper makes small; infinite where a cell has no plan."""
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


def error_lines(rows: Sequence[Row]) -> list[str]:
    """The cells at fault, a line each."""
    return [f"{row.asked}: {row.reason}" for row in rows if row.outcome == "error"]
