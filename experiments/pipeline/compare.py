"""`bayplan compare` for a pipeline: every system's plan and step on paper, in well under a second."""

import contextlib
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from experiments.commands.questions import peak_questions
from experiments.grid import Cell, Grid
from experiments.pipeline.planned import Comparison, compare_systems, rows_of
from experiments.pipeline.settings import (
    ROOT,
    ComposedPipeline,
    PipelineSettings,
    make_pipeline,
    make_systems,
    read_pipeline_settings,
)
from experiments.pipeline.simulate import Step
from experiments.pipeline.tables import cell_tables, stage_lines, stage_table, system_table
from experiments.run_directory import CONFIG, RunDirectory
from experiments.stages import Stage
from experiments.study import Ran, Study, error_lines
from experiments.tables import Table, to_markdown, to_text
from solvers.ir import InvalidProblem, Row
from solvers.ir.codec import document_to_raw, plan_file, plan_to_raw, problem_sha256, problem_to_raw
from solvers.ir.recompute import RecomputeLayerPlan
from solvers.ir.solution import Solution, Status
from solvers.timeline import chrome_trace, pipeline_report, pipeline_schedule

USAGE = """bayplan compare experiment=lynx [key=value …] [-m]

Plans a model on a cluster: what each stage keeps, recomputes, and inside which communication; how the stages are cut;
the step of every system beside each other, and how far each is from the best possible one. Settings (conf/experiment):
  shape=NAME cluster=NAME          names in conf/model/shapes and conf/hardware, or paths
  microbatch=N microbatches=N      samples in a microbatch, microbatches in a step
  tensor=N pipeline=N              devices to a layer and stages; left out: a machine's devices, and the machines
  sequence=N sequence_parallel=true memory_gib=X
  systems.NAME=POLICY/CUT/HIDE     as in systems.lynx=heu/dp/cooldown; +systems.NAME=… adds, ~systems.NAME removes one
  detail=NAME plots=false          whose stages are shown (left out: the fastest system's); no pictures
  -m, --multirun   sweep over key=value,value lists, ranges, globs, and the grid that the experiment file names; a sweep
                   that is given an earlier one's folder (run_dir=…) goes on where that ended
  hydra/launcher=processes hydra.launcher.workers=2   cells in so many processes; others, and sweepers: conf/README.md
  force=true       overwrite a folder that holds another run or sweep
"""


def asked_of(settings: PipelineSettings, comparison: Comparison) -> dict[str, Any]:
    """What a row says was asked."""
    cut = comparison.pipeline.parallelism
    return {
        "shape": settings.shape,
        "cluster": settings.cluster,
        "tensor": cut.tensor,
        "pipeline": cut.pipeline,
        "microbatch": cut.microbatch,
        "microbatches": cut.microbatches,
        "sequence": comparison.pipeline.shape.sequence,
        "sequence_parallel": cut.sequence_parallel,
        "budget_bytes": comparison.pipeline.budget_bytes,
    }


def about(comparison: Comparison) -> str:
    """The experiment in a line."""
    pipeline, cut = comparison.pipeline, comparison.pipeline.parallelism
    return (
        f"{pipeline.shape.name} on {pipeline.machine.name}, tensor {cut.tensor}, pipeline {cut.pipeline}, "
        f"{cut.microbatches} microbatches of {cut.microbatch} × {pipeline.shape.sequence}"
    )


def tables_of(rows: Sequence[Row], comparison: Comparison, detail: str | None) -> list[Table]:
    """The systems, and the stages of one of them."""
    chosen = detailed(rows, comparison, detail)
    return [system_table(rows, about(comparison)), *([] if chosen is None else [stage_table(chosen)])]


def lines_of(rows: Sequence[Row], comparison: Comparison, detail: str | None) -> list[str]:
    """What the stages of that system do, in words."""
    chosen = detailed(rows, comparison, detail)
    return [] if chosen is None else stage_lines(chosen)


def detailed(rows: Sequence[Row], comparison: Comparison, detail: str | None) -> Row | None:
    """The row of the system asked for, else of the fastest one; None where it has no step."""
    chosen = comparison.named(detail)
    return next((row for row in rows if chosen is not None and row.asked["policy"] == chosen.name), None)


def write_comparison(
    directory: RunDirectory,
    composed: ComposedPipeline,
    comparison: Comparison,
    rows: Sequence[Row],
    tables: Sequence[Table],
) -> None:
    """Settings, rows, tables, and for each system its problems, plans, report, schedule and trace."""
    directory.text(CONFIG, composed.yaml)
    directory.rows(rows)
    directory.text("table.txt", to_text(tables))
    directory.text("table.md", to_markdown(tables))
    for one in comparison.planned:
        if isinstance(one.step, Step):
            _write_step(directory, one.name, one.step)
    for row in rows:
        if row.outcome == "ok":
            directory.text(f"plans/{row.asked['policy']}/stages.txt", "\n".join(stage_lines(row)) + "\n")


def _write_step(directory: RunDirectory, name: str, step: Step) -> None:
    """`bayplan check problems/… plans/…` judges each stage's policy."""
    for stage, one in enumerate(step.stages):
        problem = step.pipeline.heu_problem(stage, one.layers)
        plan = RecomputeLayerPlan(groups=one.groups)
        solution = Solution(
            status=Status.FEASIBLE, plan=plan, objective=one.critical_us, base=0, solver=step.system.policy
        )
        directory.json(f"problems/{name}/stage-{stage}.json", problem_to_raw(problem))
        file = plan_file(solution, problem.KIND, problem_sha256(problem))
        directory.json(f"plans/{name}/stage-{stage}.json", plan_to_raw(file))
    schedule = pipeline_schedule(step.times)
    report = pipeline_report(step.times, step.memory, name, step.pipeline.budget_bytes)
    directory.json(f"schedules/{name}.json", document_to_raw(schedule))
    directory.json(f"reports/{name}.simulated.json", document_to_raw(report))
    directory.json(f"traces/{name}.json", chrome_trace(report, schedule))


def question_budget(settings: PipelineSettings) -> None:
    """Say on stderr where a budget that was given asks nothing: the fullest stage of an even partition is below it."""
    if settings.memory_gib is None:
        return
    pipeline = make_pipeline(settings)
    with contextlib.suppress(InvalidProblem):  # too few layers: said where it is planned
        stages = range(pipeline.parallelism.pipeline)
        one = Stage(pipeline.shape, pipeline.parallelism, pipeline.machine)
        peak = max(replace(one, index=index).unlimited_bytes for index in stages)
        for question in peak_questions(pipeline.budget_bytes, peak):
            print(f"bayplan: warning: memory_gib={settings.memory_gib:g}: {question}", file=sys.stderr)


def write_pictures(directory: RunDirectory, settings: PipelineSettings, comparison: Comparison) -> None:
    """Throughput of the systems, and the passes of every stage of the first, the paper's and the fastest one."""
    steps = {one.name: one.step for one in comparison.planned if isinstance(one.step, Step)}
    if not settings.plots or not steps:
        return
    from experiments.pipeline.pictures import bars_figure, pipelines_figure
    from experiments.plots import png_bytes, svg_text

    best = comparison.named(None)
    shown = dict.fromkeys([next(iter(steps)), *(["heu", "lynx"] if {"heu", "lynx"} <= set(steps) else [])])
    shown |= dict.fromkeys([best.name] if best is not None else [])
    figures = {
        "throughput": bars_figure({"throughput": {settings.shape: throughputs_of(comparison)}}, about(comparison)),
        "pipelines": pipelines_figure({name: steps[name] for name in shown}, about(comparison)),
    }
    for name, figure in figures.items():
        directory.text(f"{name}.svg", svg_text(figure))
        directory.binary(f"{name}.png", png_bytes(figure))


def throughputs_of(comparison: Comparison) -> Mapping[str, float | None]:
    """Samples per second by system; None where it does not fit."""
    return {one.name: one.step.samples_per_s if isinstance(one.step, Step) else None for one in comparison.planned}


class PipelineStudy:
    """Every system's plan and step on paper."""

    usage = USAGE
    root = ROOT

    def read(self, overrides: Sequence[str]) -> ComposedPipeline:
        """As `Study`."""
        return read_pipeline_settings(overrides)

    def composed(self, settings: object, yaml: str) -> ComposedPipeline:
        """As `Study`."""
        return ComposedPipeline(cast("PipelineSettings", settings), yaml)

    def require(self, composed: ComposedPipeline) -> None:
        """Refuse names that do not exist and splits that do not work."""
        make_pipeline(composed.settings)
        make_systems(composed.settings)

    def run(self, composed: ComposedPipeline, directory: RunDirectory) -> Ran:
        """Plan and write everything, pictures too."""
        settings = composed.settings
        question_budget(settings)
        comparison, rows = _planned(composed, directory)
        write_pictures(directory, settings, comparison)
        tables = tables_of(rows, comparison, settings.detail)
        lines = lines_of(rows, comparison, settings.detail)
        lines += [f"{row.asked['policy']}: {row.reason}" for row in rows if row.reason]
        return Ran(rows, tables, lines, f"planned in {1e3 * comparison.seconds:.0f} ms; ")

    def exit_code(self, rows: Sequence[Row]) -> int:
        """1 where no system has a plan."""
        return 0 if any(row.outcome == "ok" for row in rows) else 1

    def run_cell(self, cell: Cell[ComposedPipeline]) -> list[Row]:
        """Planned and written down, without pictures."""
        return _planned(cell.composed, cell.folder)[1]

    def objective(self, rows: Sequence[Row]) -> float:
        """Microseconds a sample of the fastest system."""
        found = [row.figures["samples_per_s"] for row in rows if row.figures.get("samples_per_s")]
        return 1e6 / max(found) if found else math.inf

    def in_order(self, cells: Sequence[Cell[ComposedPipeline]]) -> Sequence[Cell[ComposedPipeline]]:
        """As given."""
        return cells

    def sweep_tables(self, rows: Sequence[Row], axes: Sequence[str]) -> list[Table]:
        """Throughput and gap of all cells."""
        return cell_tables(rows, axes)

    def draw_sweep(self, grid: Grid[ComposedPipeline], rows: Sequence[Row]) -> None:
        """Throughput of every cell and system."""
        from experiments.pipeline.pictures import draw_sweep

        draw_sweep(grid, rows)

    def sweep_lines(self, rows: Sequence[Row]) -> list[str]:
        """The cells at fault."""
        return error_lines(rows)

    def sweep_exit_code(self, rows: Sequence[Row]) -> int:
        """0, whatever the cells say."""
        return 0


def _planned(composed: ComposedPipeline, directory: RunDirectory) -> tuple[Comparison, list[Row]]:
    """Every system planned, and written down."""
    settings = composed.settings
    comparison = compare_systems(make_pipeline(settings), make_systems(settings))
    rows = rows_of(settings.name, comparison, asked_of(settings, comparison))
    write_comparison(directory, composed, comparison, rows, tables_of(rows, comparison, settings.detail))
    return comparison, rows


STUDY: Study[ComposedPipeline] = PipelineStudy()
