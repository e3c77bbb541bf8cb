"""`bayplan train`: the same training with unlimited memory and under each chosen solver's plan."""

import sys
from collections.abc import Sequence
from dataclasses import replace

from omegaconf import DictConfig
from rich.console import Console

from experiments.commands.interrupts import Interrupts
from experiments.compose import TRAINING, composed_by, hydra_of, keep_hydra, read_settings
from experiments.config import Baseline, RobustnessConf
from experiments.figures import figures_of
from experiments.flags import read_flags
from experiments.kinds import KINDS, kind_of, root_of, trainer_of, usage_of_trainer
from experiments.places import asked_place, quoted
from experiments.reporting.keep import interrupted, keep_page
from experiments.run_directory import RunDirectory, open_run
from experiments.showing import show
from experiments.tables import Table, policy_tables, to_markdown, to_terminal
from experiments.training.compare import exit_code, print_rows, require_parts
from solvers.ir import InvalidInput, Row

USAGE = """bayplan train [experiment=NAME] [key=value …]

Trains a model for `steps` steps with unlimited memory, and again within the budget under each chosen solver's plan:
losses, step time, peak, and whether they are equal bit for bit. Settings are those of `bayplan compare`;
experiment=stability has its own (bayplan train experiment=stability --help).
"""
LINES = 12
"""Steps that the table of losses shows at most; losses.csv holds all."""


def main(argv: Sequence[str]) -> int:
    """Run the command; 0: done, 1: as of `compare`. Raises `InvalidInput` on a bad command line or model."""
    flags = read_flags(argv)
    kind = kind_of(flags.words)
    root = root_of(kind)
    if flags.sweeps:
        other = (
            "sweep with bayplan compare -m" if KINDS[kind].study else "call it once for each value, each in a run_dir"
        )
        raise InvalidInput(f"bayplan train runs one experiment: {other}, or leave -m out")
    with hydra_of(root) as hydra:
        if flags.shows:
            return show(hydra, root, flags, usage_of_trainer(kind) or USAGE)
        words = _placed(composed_by(hydra, root, flags.words), flags.words)
    trainer = trainer_of(kind)
    if trainer is not None:
        return trainer(words)
    untrained = KINDS[kind].no_trainer
    if untrained is not None:
        raise InvalidInput(untrained)
    return _train(words)


def _placed(config: DictConfig, words: Sequence[str]) -> list[str]:
    """The overrides, with Hydra's own name for the run's folder said as `run_dir`."""
    place = asked_place(config, config.run_dir, "run")
    if place is None or place == config.run_dir:
        return list(words)
    return [*words, f"run_dir={quoted(place)}"]


def _train(words: Sequence[str]) -> int:
    """The experiment's model, without a budget and under each plan."""
    from experiments.training.experiment import run_experiment  # brings PyTorch, which no --help waits for

    composed = read_settings(words)
    if not composed.settings.solver:
        raise InvalidInput("no solver is chosen, but training needs a plan: choose one, as in solver=milp-swap")
    # Training compares with the unlimited run only, in the planner's own world: compare does the rest.
    settings = replace(composed.settings, baselines=[Baseline.unlimited], robustness=RobustnessConf())
    require_parts(settings)
    directory = open_run(settings, composed.yaml)
    try:
        keep_hydra(directory, TRAINING, words)
        with Interrupts(patient=False):  # SIGTERM is as Ctrl-C
            rows = run_experiment(composed._replace(settings=settings), directory)
    except KeyboardInterrupt:
        return interrupted(directory)
    finally:
        directory.remove_if_empty()
    _write_losses(directory, rows)
    keep_page(directory)
    console = Console()
    to_terminal(console, [loss_table(rows)])
    print_rows(console, rows, policy_tables(rows), directory)
    return exit_code(rows)


def loss_table(rows: Sequence[Row]) -> Table:
    """The loss of some steps, first and last among them, a column for each policy."""
    losses = _losses(rows)
    count = max(map(len, losses.values()), default=0)
    stride = max(1, -(-count // LINES))
    shown = sorted({*range(0, count, stride), count - 1} if count else ())
    body = tuple((str(number + 1), *(f"{values[number]:.6f}" for values in losses.values())) for number in shown)
    return Table(_loss_name(rows).capitalize(), ("step", *losses), body)


def losses_csv(rows: Sequence[Row]) -> str:
    """Every step's loss, a column for each policy, with all digits."""
    losses = _losses(rows)
    lines = [",".join(["step", *losses])]
    lines += [
        ",".join([str(number), *map(repr, values)])
        for number, values in enumerate(zip(*losses.values(), strict=True), 1)
    ]
    return "\n".join(lines) + "\n"


def _loss_name(rows: Sequence[Row]) -> str:
    """The shipped model's loss has a unit; what one's own factory returns is its own."""
    own = any("factory" in row.asked.get("model", ()) for row in rows)
    return "loss" if own else "loss (nats per byte)"


def _losses(rows: Sequence[Row]) -> dict[str, list[float]]:
    known = {str(row.asked["policy"]): figures_of(row.figures).losses for row in rows}
    return {name: values for name, values in known.items() if values}


def _write_losses(directory: RunDirectory, rows: Sequence[Row]) -> None:
    from experiments.plots import loss_figure, png_bytes, svg_text  # half a second, for those only who draw

    directory.text("losses.csv", losses_csv(rows))
    directory.text("losses.md", to_markdown([loss_table(rows)]))
    figure = loss_figure(_losses(rows), "Training loss under each policy", _loss_name(rows))
    directory.text("losses.svg", svg_text(figure))
    directory.binary("losses.png", png_bytes(figure))


if __name__ == "__main__":
    from experiments.cli import main as bayplan

    sys.exit(bayplan(["train", *sys.argv[1:]]))
