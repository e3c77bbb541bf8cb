"""One training experiment: every policy planned, checked, executed and written down."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch

from experiments.commands.interrupts import end_where_asked
from experiments.compose import Composed
from experiments.config import JOINT, Settings
from experiments.execution import Decided, execute
from experiments.jointly import run_joint
from experiments.outcomes import Bench, Outcome, make_model, refused, run_baseline, run_plan
from experiments.pictures import LANES, Curve, Panel, why_absent
from experiments.planning import Prepared, best_start, make_limits, make_problem, make_solvers, prepare
from experiments.profiled import doubts, require_operators
from experiments.progress import Stages, stages
from experiments.run_directory import CONFIG, RunDirectory
from experiments.tables import policy_tables, to_markdown, to_text
from experiments.worlds import World, load_hardware
from solvers.ir import BayplanError, InvalidInput, Report, Row, SwapPlan
from solvers.ir.codec import document_to_raw, plan_file, plan_to_raw, problem_sha256, problem_to_raw
from solvers.ir.sentences import one_line
from solvers.planner import solver_entry
from solvers.timeline import chrome_trace


def run_experiment(
    composed: Composed, directory: RunDirectory, starts: Mapping[str, SwapPlan] | None = None
) -> list[Row]:
    """All policies of one experiment; every row is on disk before the next policy begins.

    `starts` are plans of other problems: solvers that can begin from a plan get the best of those valid here.
    """
    settings = composed.settings
    torch.set_num_threads(1)  # before the first backward pass, whose thread keeps what it finds; two runs then agree
    with stages(2 + len(settings.baselines) + 2 * len(settings.solver)) as shown:
        with shown.stage("training with unlimited memory"):
            bench = make_bench(settings, shown.say)
        directory.text(CONFIG, composed.yaml)  # from here on the input is known to be good
        directory.json("graph.json", document_to_raw(bench.graph))
        directory.json("problem.json", problem_to_raw(bench.problem))
        outcomes = _run_policies(bench, directory, shown, starts or {})
        with shown.stage("drawing"):
            _write_pages(directory, outcomes, bench)
    return [outcome.row for outcome in outcomes]


def make_bench(settings: Settings, tell: Callable[[str], None]) -> Bench:
    """Train with all memory, profile a step, and state the problem."""
    world = World(settings.device, load_hardware(settings.hardware), allocator=settings.allocator)
    model = make_model(settings.model)
    unlimited = execute(
        model, world, settings.steps, profile=settings.title, tell=lambda text: tell(f"unlimited memory: {text}")
    )
    if unlimited.graph is None:
        raise InvalidInput(f"the model does not even fit the whole device ({unlimited.reason}): make it smaller")
    wild = (~unlimited.losses.isfinite()).nonzero().flatten().tolist()
    if wild:
        raise InvalidInput(
            f"the loss of step {wild[0] + 1} is {unlimited.losses[wild[0]].item()} with unlimited memory, so nothing "
            "can be compared with it: correct the model, lower its learning rate, or train for fewer steps"
        )
    require_operators(unlimited.graph, f"the step of {settings.title}", world.kind.value)
    for doubt in doubts(unlimited.graph):
        raise InvalidInput(doubt)
    problem = make_problem(settings.problem, unlimited.graph, world.hardware)
    return Bench(settings, world, model, unlimited, unlimited.graph, problem, tell)


def _run_policies(
    bench: Bench, directory: RunDirectory, shown: Stages, starts: Mapping[str, SwapPlan]
) -> list[Outcome]:
    outcomes: list[Outcome] = []
    for baseline in bench.settings.baselines:
        with shown.stage(f"executing {baseline.value}"):
            outcomes.append(run_baseline(bench, baseline))
        directory.rows([outcome.row for outcome in outcomes])
    limits = make_limits(bench.settings.limits)
    for name, solver in make_solvers(bench.settings, best_start(bench.problem, starts)).items():
        if solver_entry(name).kind == JOINT:
            with shown.stage(f"executing {name}"):
                outcomes.append(run_joint(bench, name))
            end_where_asked()
            directory.rows([outcome.row for outcome in outcomes])
            continue
        try:
            with shown.stage(f"solving {name}"):
                prepared = prepare(solver, bench.problem, bench.graph, limits, shown.watch(f"solving {name}"))
        except BayplanError as error:  # the other policies may have an answer
            outcomes.append(refused(bench, name, one_line(error)))
        else:
            end_where_asked()
            _write_plan(directory, name, prepared)
            with shown.stage(f"executing {name}"):
                outcomes.append(run_plan(bench, name, prepared, partial(_write_plan, directory, name)))
        directory.rows([outcome.row for outcome in outcomes])
    return outcomes


def _write_plan(directory: RunDirectory, name: str, prepared: Prepared) -> None:
    directory.json(f"plans/{name}.json", plan_to_raw(prepared.file))
    if prepared.planned is None or prepared.predicted is None:
        return
    directory.json(f"schedules/{name}.json", document_to_raw(prepared.planned.schedule))
    directory.json(f"reports/{name}.simulated.json", document_to_raw(prepared.predicted))


def _write_decided(directory: RunDirectory, name: str, decided: Decided) -> None:
    """A joint plan beside its own problem, which is another one than that of the swap plans."""
    file = plan_file(decided.solution, JOINT, problem_sha256(decided.problem))
    directory.json(f"graphs/{name}.json", document_to_raw(decided.graph))
    directory.json(f"problems/{JOINT}/{name}.json", problem_to_raw(decided.problem))
    directory.json(f"plans/{JOINT}/{name}.json", plan_to_raw(file))
    directory.json(f"schedules/{name}.json", document_to_raw(decided.schedule))
    directory.json(f"reports/{name}.simulated.json", document_to_raw(decided.predicted))
    directory.json(f"traces/{name}.json", chrome_trace(decided.predicted))


def _write_pages(directory: RunDirectory, outcomes: Sequence[Outcome], bench: Bench) -> None:
    for outcome in outcomes:
        name = str(outcome.row.asked["policy"])
        if outcome.decided is not None:
            _write_decided(directory, name, outcome.decided)
        elif outcome.report is None and outcome.curve is not None:
            report = _baseline_report(bench, name, outcome.curve)
            directory.json(f"reports/{name}.executed.json", document_to_raw(report))
        if outcome.report is not None:
            directory.json(f"reports/{name}.executed.json", document_to_raw(outcome.report))
            directory.json(f"traces/{name}.json", chrome_trace(outcome.report))
    rows = [outcome.row for outcome in outcomes]
    tables = policy_tables(rows)
    directory.text("table.txt", to_text(tables))
    directory.text("table.md", to_markdown(tables))
    if bench.settings.plots:
        _write_pictures(directory, outcomes, bench)


def _baseline_report(bench: Bench, name: str, curve: Curve) -> Report:
    """What is known of a step that no plan moves: how long it takes, and its memory."""
    return Report(
        name=name,
        how="executed",
        source=bench.world.name,
        makespan_us=curve.end_us,
        peak_bytes=curve.peak_bytes,
        memory=tuple(curve.points),
    )


def _write_pictures(directory: RunDirectory, outcomes: Sequence[Outcome], bench: Bench) -> None:
    from experiments.plots import lanes_figure, memory_figure, png_bytes, svg_text  # half a second

    curves: list[Curve] = [outcome.curve for outcome in outcomes if outcome.curve is not None]
    panels: list[Panel] = [outcome.panel for outcome in outcomes if outcome.panel is not None]
    absent = [why_absent(outcome.row) for outcome in outcomes if outcome.curve is None]
    solved = [
        why_absent(outcome.row) for outcome in outcomes if outcome.panel is None and "status" in outcome.row.figures
    ]
    place = f"{bench.settings.title} ({bench.world.name})"
    figures = {}
    if curves:
        figures["memory"] = memory_figure(
            curves, bench.budget_bytes, f"Device memory during one step of {place}", absent=absent
        )
    if panels:
        figures["lanes"] = lanes_figure(panels, LANES, f"Lanes during one step of {place}", absent=solved)
    for name, figure in figures.items():
        directory.text(f"{name}.svg", svg_text(figure))
        directory.binary(f"{name}.png", png_bytes(figure))
