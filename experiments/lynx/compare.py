"""`bayplan compare` for a pipeline: every system's plan and step on paper, in well under a second."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from experiments.compose import split_flags
from experiments.lynx.planned import Comparison, compare_systems, rows_of
from experiments.lynx.settings import (
    ComposedPipeline,
    PipelineSettings,
    make_pipeline,
    make_systems,
    read_pipeline_settings,
)
from experiments.lynx.simulate import Step
from experiments.lynx.tables import stage_lines, stage_table, system_table
from experiments.printable import printable
from experiments.run_directory import CONFIG, RunDirectory, interrupted, open_run_directory
from experiments.tables import Table, say, to_markdown, to_terminal, to_text
from solvers.ir import Row
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
  -m, --multirun   sweep over key=value,value lists and over the grid that the experiment file names; a sweep that is
                   given an earlier one's folder (run_dir=…) goes on where that ended
"""


def main(argv: Sequence[str]) -> int:
    """Run the command; 0: done, 1: no system has a plan. Raises `InvalidInput` on a bad command line."""
    words, flags = split_flags(argv, {"-m", "--multirun", "-h", "--help"})
    if flags & {"-h", "--help"}:
        print(USAGE, end="")
        return 0
    if flags:
        from experiments.lynx.sweep import run_sweep

        return run_sweep(words)
    composed = read_pipeline_settings(words)
    pipeline, systems = make_pipeline(composed.settings), make_systems(composed.settings)
    directory = open_run_directory(composed.settings.name, composed.settings.run_dir)
    try:
        comparison = compare_systems(pipeline, systems)
        rows = rows_of(composed.settings.name, comparison, asked_of(composed.settings, comparison))
        tables = tables_of(rows, comparison, composed.settings.detail)
        print_comparison(Console(), rows, tables, lines_of(rows, comparison, composed.settings.detail))
        write_comparison(directory, composed, comparison, rows, tables)
        write_pictures(directory, composed.settings, comparison)
    except KeyboardInterrupt:
        return interrupted(directory)
    finally:
        directory.remove_if_empty()
    print(f"planned in {1e3 * comparison.seconds:.0f} ms; written to {printable(str(directory.path))}")
    return 0 if any(row.outcome == "ok" for row in rows) else 1


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


def print_comparison(console: Console, rows: Sequence[Row], tables: Sequence[Table], lines: Sequence[str]) -> None:
    """The tables, what the stages do, and why a system has no step."""
    to_terminal(console, tables)
    for line in lines:
        say(console, line)
    for row in rows:
        if row.reason:
            say(console, f"{row.asked['policy']}: {row.reason}")


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


def write_pictures(directory: RunDirectory, settings: PipelineSettings, comparison: Comparison) -> None:
    """Throughput of the systems, and the passes of every stage of the first, the paper's and the fastest one."""
    steps = {one.name: one.step for one in comparison.planned if isinstance(one.step, Step)}
    if not settings.plots or not steps:
        return
    from experiments.lynx.pictures import bars_figure, pipelines_figure
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
