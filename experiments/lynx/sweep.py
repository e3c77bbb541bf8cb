"""`bayplan compare experiment=lynx_sweep -m`: a grid of pipelines, each cell on disk before the next one begins."""

from collections.abc import Sequence

from rich.console import Console

from experiments.grid import DONE, Cell, Grid, open_grid
from experiments.lynx.compare import asked_of, tables_of, write_comparison
from experiments.lynx.planned import compare_systems, rows_of
from experiments.lynx.settings import ROOT, ComposedPipeline, make_pipeline, make_systems, read_pipeline_settings
from experiments.lynx.tables import cell_tables
from experiments.progress import stages
from experiments.rows import commit
from experiments.run_directory import CONFIG, interrupted
from experiments.tables import shown, to_markdown, to_terminal, to_text
from solvers.ir import BayplanError, Row


def run_sweep(overrides: Sequence[str]) -> int:
    """Run every cell that is not there yet, write all rows and one table; 0, whatever the cells say."""
    grid = open_grid(overrides, read_pipeline_settings, ROOT)
    try:
        rows = _run_cells(grid)
    except KeyboardInterrupt:
        return interrupted(grid.directory)
    tables = cell_tables(rows, grid.axes)
    grid.directory.text("table.txt", to_text(tables))
    grid.directory.text("table.md", to_markdown(tables))
    console = Console()
    to_terminal(console, tables)
    for row in rows:
        if row.outcome == "error":
            console.print(f"{row.asked}: {row.reason}", markup=False, highlight=False, soft_wrap=True)
    _write_picture(grid, rows)
    console.print(f"written to {grid.directory.path}", markup=False, highlight=False, soft_wrap=True)
    return 0


def _run_cells(grid: Grid[ComposedPipeline]) -> list[Row]:
    rows: list[Row] = []
    with stages(len(grid.cells)) as shown_stages:
        for cell in grid.cells:
            with shown_stages.stage(f"{cell.folder.path.name} ({len(rows)} rows so far)"):
                rows += [cell.with_values(row, grid.axes) for row in _rows_of(cell)]
            grid.directory.rows(rows)
    return rows


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
        rows = [_error_row(settings.name, str(error))]
        cell.folder.rows(rows)
        return rows
    rows = rows_of(settings.name, comparison, asked_of(settings, comparison))
    tables = tables_of(rows, comparison, settings.detail)
    write_comparison(cell.folder, cell.composed, comparison, rows, tables)
    cell.folder.text(DONE, "")
    return rows


def _error_row(name: str, reason: str) -> Row:
    return Row(
        experiment=name,
        asked={"policy": "all"},
        outcome="error",
        figures={},
        provenance="nothing was simulated",
        commit=commit(),
        seed=0,
        reason=reason,
    )


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
