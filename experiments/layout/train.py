"""`bayplan train experiment=protrain`: layouts executed on a device that is too small, beside FSDP2 on a large one."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from rich.console import Console

from experiments.compose import keep_hydra
from experiments.layout.figures import executed_report
from experiments.layout.outcomes import FSDP2, FSDP2_PLAN, PLAIN, Facts, broken, planned_figures, row_of, table_of
from experiments.layout.settings import ROOT, ComposedLayout, read_layout_settings
from experiments.layout.shapes import NAME as BY_SHAPES
from experiments.layout.shapes import row_by_shapes, table_by_shapes
from experiments.layout.training import (
    Trained,
    Where,
    decided,
    parameters_of,
    train_fsdp2,
    train_laid_out,
    train_plain,
)
from experiments.progress import stages
from experiments.reporting.keep import interrupted, keep_page
from experiments.run_directory import CONFIG, RunDirectory, open_run
from experiments.tables import Table, to_markdown, to_text
from experiments.training.compare import print_rows
from experiments.worlds import load_hardware
from runtime.layout.deciding import Decided
from solvers.ir import Row
from solvers.ir.amounts import parse_bytes
from solvers.ir.codec import document_to_raw
from solvers.planner import lower_plan, lower_to_fsdp2
from solvers.timeline import chrome_trace

USAGE = """bayplan train experiment=protrain [key=value …]

Trains a byte-level GPT on real text on a device that holds a third of its states: as each layout solver decides, and
with PyTorch's FSDP2 and CPU offload. Losses, parameters and gradients are compared bit for bit with plain training;
step and peak with what was predicted. Settings (experiments/layout/settings.py):
  times_larger=3 host_budget=1GiB steps=10 noise=0.1 fsdp2=true +policies.NAME=search
  larger.layers=40 larger.width=5120 larger.hardware=protrain-a100   planned by shapes; larger.layers=0: not
  hardware=sim-small model.layers=8 model.width=256 run_dir=PATH plots=false
"""


def main(argv: Sequence[str]) -> int:
    """Run the command; 0: done, 1: a bit differs, accesses raced, a layout broke its budget, or none was found."""
    composed = read_layout_settings(argv)
    directory = open_run(composed.settings, composed.yaml)
    try:
        keep_hydra(directory, ROOT, argv)
        rows = run(composed, directory)
    except KeyboardInterrupt:
        return interrupted(directory)
    finally:
        directory.remove_if_empty()
    keep_page(directory)
    print_rows(Console(), rows, tables_of(rows), directory)
    planned = [row for row in rows if row.asked["policy"] in composed.settings.policies]
    return 1 if any(map(broken, rows)) or all(row.outcome != "ok" for row in planned) else 0


@dataclass
class _Runner:
    """Runs one experiment's trainings; `first` is the first plan that was found."""

    facts: Facts
    directory: RunDirectory
    where: Where
    first: Decided | None = field(default=None)

    def row(self, name: str, solver: str) -> Row:
        """Decided, executed, and executed again with noise; its files."""
        settings, shape = self.facts.composed.settings, self.facts.composed.shape
        host_bytes = parse_bytes(settings.host_budget, "host_budget")
        plan = decided(shape, self.where, solver, self.facts.device_bytes, host_bytes)
        if isinstance(plan, str):
            return row_of(self.facts, name, solver, None, {"reason": plan})
        self.first = self.first or plan
        done = train_laid_out(shape, self.where, settings.steps, plan)
        more = planned_figures(plan)
        if settings.noise:
            noisy = train_laid_out(shape, replace(self.where, noise=settings.noise), settings.steps, plan)
            more |= {"noise_step_us": noisy.step_us, "noise_equal": noisy.losses == self.facts.plain.losses}
        self._write(name, plan, done)
        return row_of(self.facts, name, solver, done, more)

    def _write(self, name: str, plan: Decided, done: Trained) -> None:
        schedule = lower_plan(plan.problem, plan.plan)
        assert done.told is not None, "a layout's training tells"
        predicted = done.told.predicted
        executed = executed_report(f"{name}, last step", done, self.facts.device_bytes)
        self.directory.json(f"reports/{name}-predicted.json", document_to_raw(predicted))
        self.directory.json(f"reports/{name}-executed.json", document_to_raw(executed))
        self.directory.json(f"traces/{name}-predicted.json", chrome_trace(predicted, schedule))
        self.directory.json(f"traces/{name}-executed.json", chrome_trace(executed))
        if self.facts.composed.settings.plots:
            from experiments.layout.pictures import lanes_figure  # half a second
            from experiments.plots import png_bytes, svg_text

            figure = lanes_figure(predicted, executed, f"One step under {name}'s layout")
            self.directory.text(f"lanes-{name}.svg", svg_text(figure))
            self.directory.binary(f"lanes-{name}.png", png_bytes(figure))

    def fsdp2(self, name: str) -> Row:
        """The first plan's settings, or all offloaded and checkpointed."""
        assert self.first is not None, "a plan names the blocks"
        settings = lower_to_fsdp2(self.first.problem, self.first.plan)
        if name == FSDP2:
            units = tuple(
                replace(unit, offload=True, reshard=True, checkpoint=unit.name not in ("first", "last"))
                for unit in settings.units
            )
            settings = replace(settings, units=units)
        composed = self.facts.composed
        done = train_fsdp2(composed.shape, self.where, composed.settings.steps, settings)
        more = {"departures": list(settings.departures)} if name == FSDP2_PLAN else {}
        return row_of(self.facts, name, "fully_shard", done, more)


def run(composed: ComposedLayout, directory: RunDirectory) -> list[Row]:
    """Plain training, every policy, FSDP2; the files of all."""
    settings = composed.settings
    where, parameters = Where(load_hardware(settings.hardware)), parameters_of(composed.shape)
    device_bytes = int(16 * parameters / settings.times_larger)
    directory.text(CONFIG, composed.yaml)
    with stages(1 + len(settings.policies) + 2 * settings.fsdp2 + (settings.larger.layers > 0)) as shown:
        with shown.stage("plain training"):
            plain = train_plain(composed.shape, where, settings.steps)
        facts = Facts(composed, parameters, device_bytes, plain)
        rows = [row_of(facts, PLAIN, "everything on the device", plain, {})]
        runner = _Runner(facts, directory, where)
        for name, solver in settings.policies.items():
            with shown.stage(name):
                rows.append(runner.row(name, solver))
            directory.rows(rows)
        for name in (FSDP2, FSDP2_PLAN) if settings.fsdp2 and runner.first is not None else ():
            with shown.stage(name):
                rows.append(runner.fsdp2(name))
        if settings.larger.layers:
            with shown.stage(BY_SHAPES):
                rows.append(row_by_shapes(composed))
    directory.rows(rows)
    directory.text("table.txt", to_text(tables_of(rows)))
    directory.text("table.md", to_markdown(tables_of(rows)))
    return rows


def tables_of(rows: Sequence[Row]) -> list[Table]:
    """What was trained, and what was planned by shapes."""
    shapes = [row for row in rows if row.asked["policy"] == BY_SHAPES]
    return [table_of([row for row in rows if row not in shapes]), *map(table_by_shapes, shapes)]
