"""`bayplan train experiment=stability`: the same long training under every policy, compared bit by bit."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console

from experiments.compose import keep_hydra
from experiments.progress import Stages, stages
from experiments.reporting.keep import interrupted, keep_page
from experiments.run_directory import CONFIG, RunDirectory, open_run, same_settings
from experiments.stability.execution import Progress, execute
from experiments.stability.outcomes import loss_table, row_of, tables_of
from experiments.stability.record import Run, entries_from_csv, entries_to_csv, run_from_raw, run_to_raw
from experiments.stability.settings import (
    ROOT,
    ComposedStability,
    Policy,
    StabilitySettings,
    policies_of,
    read_stability_settings,
)
from experiments.tables import to_markdown, to_terminal, to_text
from experiments.training.compare import print_rows
from experiments.worlds import World, load_hardware
from solvers.ir import InvalidInput, Row
from solvers.ir.codec import parse_json, read_text

USAGE = """bayplan train experiment=stability [key=value …]

Trains a byte-level GPT with dynamic loss scaling and a validation now and then, under each policy within a budget, and
compares every loss with the unlimited run's. Settings (experiments/stability/settings.py):
  steps=5000 validate_every=200 validation_batches=2 budget_fraction=0.8
  policies=[unlimited,none,recompute,features,forgets,index_guard,features_alone,index]
  scaling.initial=65536 scaling.growth_interval=100 scaling.half=true
  model=gpt-micro model.layers=3 hardware=sim-tiny run_dir=PATH plots=false
run_dir= of an earlier run with the same settings keeps what had ended there and runs the rest.
"""


def main(argv: Sequence[str]) -> int:
    """Run the command; 0: done, 1: a session did not train to the end, or not equally."""
    composed = read_stability_settings(argv)
    World(composed.settings.device, load_hardware(composed.settings.hardware)).require()
    directory = open_run(composed.settings, composed.yaml)
    try:
        keep_hydra(directory, ROOT, argv)
        runs, rows = run_policies(composed, directory)
    except KeyboardInterrupt:
        return interrupted(directory)
    finally:
        directory.remove_if_empty()
    keep_page(directory)
    to_terminal(Console(), [loss_table(runs)])
    print_rows(Console(), rows, tables_of(rows), directory)
    return exit_code(rows)


def exit_code(rows: Sequence[Row]) -> int:
    """1 where a session as it is did not give the unlimited run's losses."""
    judged = [row for row in rows if row.asked["policy"] == Policy.features.value]
    return 0 if all(row.figures.get("equal_losses") for row in judged) else 1


def run_policies(composed: ComposedStability, directory: RunDirectory) -> tuple[list[Run], list[Row]]:
    """Every policy in turn; what has ended is on disk before the next one begins."""
    torch.set_num_threads(1)  # before the first backward pass, whose thread keeps what it finds
    settings = composed.settings
    bench = _Bench(
        settings, World(settings.device, load_hardware(settings.hardware)), directory, _same(composed, directory)
    )
    directory.text(CONFIG, composed.yaml)
    runs: list[Run] = []
    rows: list[Row] = []
    policies = policies_of(settings)
    with stages(len(policies)) as shown:
        for policy in policies:
            with shown.stage(policy.value):
                runs.append(bench.known(policy) or bench.run(policy, runs[0] if runs else None, shown))
            rows.append(row_of(runs[-1], runs[0], settings, bench.world, bench.budget_bytes(runs[0])))
            _write(directory, settings, runs, rows)
    return runs, rows


@dataclass(frozen=True)
class _Bench:
    """What all policies share; `resumed` says that the folder holds runs of the same settings."""

    settings: StabilitySettings
    world: World
    directory: RunDirectory
    resumed: bool

    def budget_bytes(self, reference: Run) -> int:
        """The budget, of which the unlimited run's peak decides."""
        fraction = self.settings.budget_fraction
        if fraction is None:
            assert self.settings.budget_bytes is not None  # settings hold exactly one
            return self.settings.budget_bytes
        return int(fraction * reference.peak_bytes)

    def known(self, policy: Policy) -> Run | None:
        """What an earlier call wrote of a policy that had ended."""
        place, losses = self._places(policy)
        path = self.directory.path / place
        if not self.resumed or not path.exists():
            return None
        text = read_text(self.directory.path / losses)
        return run_from_raw(parse_json(read_text(path), str(path)), entries_from_csv(text, losses))

    def run(self, policy: Policy, reference: Run | None, shown: Stages) -> Run:
        """Train under a policy; its losses are on disk after each validation, and when it ends, however it does."""
        place, losses = self._places(policy)
        progress = Progress(
            save=lambda entries: _ignored(self.directory.text(losses, entries_to_csv(entries))),
            tell=lambda text: shown.say(f"{policy.value}: {text}"),
        )
        budget = None if reference is None else self.budget_bytes(reference)
        run = execute(policy, self.settings, self.world, budget, progress)
        if policy is Policy.unlimited and run.reason is not None:
            raise InvalidInput(f"the training ends even with unlimited memory ({run.reason}): make the model smaller")
        self.directory.json(place, run_to_raw(run))
        return run

    def _places(self, policy: Policy) -> tuple[str, str]:
        return f"policies/{policy.value}.json", f"losses/{policy.value}.csv"


def _ignored(_: Path) -> None:
    """Say that a written file's place is not needed."""


def _same(composed: ComposedStability, directory: RunDirectory) -> bool:
    """Whether the folder holds a run of these settings, which goes on."""
    path = directory.path / CONFIG
    return path.exists() and same_settings(read_text(path), composed.yaml)


def _write(directory: RunDirectory, settings: StabilitySettings, runs: Sequence[Run], rows: Sequence[Row]) -> None:
    tables = [*tables_of(rows), loss_table(runs)]
    directory.rows(rows)
    directory.text("table.txt", to_text(tables))
    directory.text("table.md", to_markdown(tables))
    if settings.plots:
        from experiments.plots import png_bytes, svg_text  # half a second
        from experiments.stability.pictures import stability_figure

        figure = stability_figure(runs, f"Training loss within {settings.budget_fraction or ''} of the peak")
        directory.text("losses.svg", svg_text(figure))
        directory.binary("losses.png", png_bytes(figure))
