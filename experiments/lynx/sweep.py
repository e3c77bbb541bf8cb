"""`bayplan compare experiment=lynx_sweep -m`: a grid of pipelines, each cell on disk before the next one begins."""

from collections.abc import Sequence

from experiments.grid import DONE, Cell, Grid, error_row, open_grid, run_cells, show_sweep
from experiments.lynx.compare import asked_of, tables_of, write_comparison
from experiments.lynx.planned import compare_systems, rows_of
from experiments.lynx.settings import ROOT, ComposedPipeline, make_pipeline, make_systems, read_pipeline_settings
from experiments.lynx.tables import cell_tables
from experiments.run_directory import CONFIG, interrupted
from experiments.tables import shown
from solvers.ir import BayplanError, Row


def run_sweep(overrides: Sequence[str]) -> int:
    """Run every cell that is not there yet, write all rows and one table; 0, whatever the cells say."""
    grid = open_grid(overrides, read_pipeline_settings, ROOT)
    try:
        rows = run_cells(grid.cells, grid.axes, grid.directory, _rows_of)
    except KeyboardInterrupt:
        return interrupted(grid.directory)
    _write_picture(grid, rows)
    show_sweep(grid.directory, rows, cell_tables(rows, grid.axes))
    return 0


def _rows_of(cell: Cell[ComposedPipeline]) -> list[Row]:
    """The cell's rows: those of an earlier run if its settings are the same; a fault of the cell's input is a row."""
    known = cell.known_rows()
    if known is not None:
        return known
    (cell.folder.path / DONE).unlink(missing_ok=True)  # an earlier run's, with other settings
    settings = cell.composed.settings
    try:
        comparison = compare_systems(make_pipeline(settings), make_systems(settings))
    except BayplanError as error:
        cell.folder.text(CONFIG, cell.composed.yaml)
        rows = [error_row(settings.name, str(error))]
        cell.folder.rows(rows)
        return rows
    rows = rows_of(settings.name, comparison, asked_of(settings, comparison))
    tables = tables_of(rows, comparison, settings.detail)
    write_comparison(cell.folder, cell.composed, comparison, rows, tables)
    cell.folder.text(DONE, "")
    return rows


def _write_picture(grid: Grid[ComposedPipeline], rows: Sequence[Row]) -> None:
    """Throughput of every cell and system as bars, a panel for each value of the first axis."""
    panels: dict[str, dict[str, dict[str, float | None]]] = {}
    for row in rows:
        if row.outcome in ("ok", "infeasible"):
            first, *rest = [shown(row.asked.get(axis)) for axis in grid.axes] or ["all"]
            cell = panels.setdefault(first, {}).setdefault(" ".join(rest), {})
            cell[str(row.asked["policy"])] = row.figures.get("samples_per_s")
    if not panels:
        return
    from experiments.lynx.pictures import bars_figure
    from experiments.plots import png_bytes, svg_text

    figure = bars_figure(panels, f"{grid.name}: throughput, simulated")
    grid.directory.text("throughput.svg", svg_text(figure))
    grid.directory.binary("throughput.png", png_bytes(figure))
