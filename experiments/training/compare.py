"""`bayplan compare` for a training: every policy planned, checked, executed and written down."""

import math
from collections.abc import Sequence
from typing import cast

from rich.console import Console

from experiments.compose import TRAINING, Composed, read_settings
from experiments.config import JOINT, Baseline, FactoryConf, Settings
from experiments.figures import figures_of
from experiments.grid import Cell, Grid
from experiments.hardware import read_hardware
from experiments.run_directory import RunDirectory
from experiments.study import Ran, Study
from experiments.tables import Table, axis_name, policy_tables, say, sweep_tables, to_terminal
from solvers.ir import InvalidInput, Row
from solvers.planner import solver_entry

USAGE = """bayplan compare [experiment=NAME] [key=value …] [-m]

Trains a model under every chosen policy and compares them. Settings are Hydra's: groups hardware, model, problem,
solver and experiment stand in conf/; any setting can be overridden, as in steps=8 or solver=[milp-swap].
  -m, --multirun   sweep over key=value,value lists, ranges, globs, and the grid that the experiment file names; a sweep
                   that is given an earlier one's folder (run_dir=…) goes on where that ended
  hydra/launcher=processes hydra.launcher.workers=2   cells in so many processes; others, and sweepers: conf/README.md
  force=true       overwrite a folder that holds another run or sweep
Exit code 1: no solver has a plan that trained, or a plan broke its promise: it ended early, went beyond its budget, or
changed a bit of the losses, parameters or gradients.
"""


def require_parts(settings: Settings) -> None:
    """Refuse solvers, engines, hardware, devices and baselines that are not there, before anything is trained."""
    from experiments.jointly import STEPS  # these bring PyTorch, which no --help waits for
    from experiments.planning import make_solvers
    from experiments.worlds import require_world

    make_solvers(settings)
    if Baseline.recompute in settings.baselines and isinstance(settings.model, FactoryConf):
        raise InvalidInput(
            f"{settings.model.factory} has no variant that recomputes: leave 'recompute' out, as in "
            "baselines=[none,unlimited]"
        )
    joint = [name for name in settings.solver if solver_entry(name).kind == JOINT]
    if joint and settings.steps < STEPS:
        raise InvalidInput(
            f"steps is {settings.steps}, but {joint[0]} measures the first step and plans those behind it: train for "
            f"at least {STEPS}"
        )
    require_world(settings.device, settings.hardware, settings.allocator)
    if settings.robustness.hardware is not None:
        read_hardware(settings.robustness.hardware)


def print_rows(console: Console, rows: Sequence[Row], tables: Sequence[Table], directory: RunDirectory) -> None:
    """The tables, what each row has to say, and where the files are."""
    to_terminal(console, tables)
    for line in lines_of(rows):
        say(console, line)
    say(console, f"written to {directory.path}")


def lines_of(rows: Sequence[Row]) -> list[str]:
    """What each row has to say."""
    return [f"{row.asked['policy']}: {row.reason}" for row in rows if row.reason]


def exit_code(rows: Sequence[Row]) -> int:
    """1 where solvers were asked and none has a plan that trained, or one has a plan that broke its promise."""
    solved = [row for row in rows if "status" in row.figures]
    trained = not solved or any(row.outcome == "ok" for row in solved)
    return 0 if trained and not any(breaks_promise(row) for row in solved) else 1


def breaks_promise(row: Row) -> bool:
    """Whether a checked plan did not train to the end within its budget and bit by bit as without one."""
    figures = figures_of(row.figures)
    if figures.swapped_bytes is None:  # there was no plan
        return False
    if row.outcome != "ok" or False in (figures.equal_losses, figures.equal_parameters, figures.equal_gradients):
        return True
    return (figures.peak_bytes or 0) > (figures.budget_bytes or 0)


class TrainingStudy:
    """A model trained under every policy."""

    usage = USAGE
    root = TRAINING

    def read(self, overrides: Sequence[str]) -> Composed:
        """As `Study`."""
        return read_settings(overrides)

    def composed(self, settings: object, yaml: str) -> Composed:
        """As `Study`."""
        return Composed(cast("Settings", settings), yaml)

    def require(self, composed: Composed) -> None:
        """Refuse what is not there, before anything is trained."""
        require_parts(composed.settings)

    def run(self, composed: Composed, directory: RunDirectory) -> Ran:
        """Train under every policy."""
        from experiments.training.experiment import run_experiment

        rows = run_experiment(composed, directory)
        return Ran(rows, policy_tables(rows), lines_of(rows))

    def exit_code(self, rows: Sequence[Row]) -> int:
        """As `exit_code`."""
        return exit_code(rows)

    def in_order(self, cells: Sequence[Cell[Composed]]) -> Sequence[Cell[Composed]]:
        """Hard cells first: their plans are starts for the others."""
        from experiments.training.cells import hardness

        return sorted(cells, key=hardness)

    def run_cell(self, cell: Cell[Composed]) -> list[Row]:
        """Each cell in a process of its own."""
        from experiments.training.cells import rows_in_own_process

        return rows_in_own_process(cell)

    def objective(self, rows: Sequence[Row]) -> float:
        """The shortest executed step under a plan, in microseconds."""
        steps = [figures_of(row.figures).step_us for row in rows if row.outcome == "ok" and "status" in row.figures]
        return min((step for step in steps if step is not None), default=math.inf)

    def sweep_tables(self, rows: Sequence[Row], axes: Sequence[str]) -> list[Table]:
        """Step times of all cells, and whether they rise as memory and links shrink."""
        from experiments.sweep_rows import monotony

        return sweep_tables(rows, axes, monotony(rows))

    def draw_sweep(self, grid: Grid[Composed], rows: Sequence[Row]) -> None:
        """Step times over the first axis, where there are two."""
        from experiments.sweep_rows import sweep_lines

        lines = sweep_lines(rows, grid.axes) if len(grid.axes) == 2 else []
        if lines:
            from experiments.plots import png_bytes, svg_text, sweep_figure  # half a second, for those only who draw

            figure = sweep_figure(lines, axis_name(grid.axes[0]), f"{grid.name}: step time of the plans")
            grid.directory.text("sweep.svg", svg_text(figure))
            grid.directory.binary("sweep.png", png_bytes(figure))

    def sweep_lines(self, rows: Sequence[Row]) -> list[str]:
        """The cells at fault, and the plans that broke their promise."""
        return lines_of([row for row in rows if row.outcome in ("error", "refused") or breaks_promise(row)])

    def sweep_exit_code(self, rows: Sequence[Row]) -> int:
        """1 where a plan broke its promise."""
        return 1 if any(map(breaks_promise, rows)) else 0


STUDY: Study[Composed] = TrainingStudy()
