"""`bayplan compare experiment=ft_scale -m`: a grid of clusters, each cell on disk before the next one begins."""

from collections.abc import Sequence

from experiments.chameleon.compare import require_answerable, run_experiment
from experiments.chameleon.settings import ROOT, ComposedCluster, read_cluster_settings
from experiments.chameleon.tables import cell_tables
from experiments.grid import DONE, Cell, error_row, open_grid, run_cells, show_sweep
from experiments.run_directory import CONFIG, interrupted
from solvers.ir import BayplanError, Row


def run_sweep(overrides: Sequence[str]) -> int:
    """Run every cell that is not there yet, write all rows and tables; 0, whatever the cells say."""
    grid = open_grid(overrides, read_cluster_settings, ROOT)
    try:
        rows = run_cells(grid.cells, grid.axes, grid.directory, _rows_of)
    except KeyboardInterrupt:
        return interrupted(grid.directory)
    show_sweep(grid.directory, rows, cell_tables(rows, grid.axes))
    return 0


def _rows_of(cell: Cell[ComposedCluster]) -> list[Row]:
    """The cell's rows: those of an earlier run if its settings are the same; a fault of the cell's input is a row."""
    known = cell.known_rows()
    if known is not None:
        return known
    (cell.folder.path / DONE).unlink(missing_ok=True)  # an earlier run's, with other settings
    cell.folder.text(CONFIG, cell.composed.yaml)
    try:
        require_answerable(cell.composed.settings)
        rows = run_experiment(cell.composed, cell.folder, None).rows
    except BayplanError as error:
        rows = [error_row(cell.composed.settings.name, str(error))]
        cell.folder.rows(rows)
        return rows
    cell.folder.text(DONE, "")
    return rows
