"""What the schedule of a pipeline plan would do: every rank's lanes, memory of the fullest, bubbles (README)."""

from collections import Counter

from solvers.ir.errors import InvalidProblem
from solvers.ir.pipeline import PipelineProblem
from solvers.ir.report import Report, Span
from solvers.ir.schedule import Action, Schedule
from solvers.timeline.lanes import label, makespan_us
from solvers.timeline.pipeline.inputs import Discipline
from solvers.timeline.pipeline.stretches import layer_passes
from solvers.timeline.pipeline.times import pipeline_makespan_us

Levels = tuple[tuple[float, int], ...]


def simulate_pipeline(problem: PipelineProblem, schedule: Schedule) -> Report:
    """The report of a pipeline schedule; raises `InvalidProblem` where it is not a schedule of this problem.

    The base is the same partition's step without recomputation.
    """
    layers = stage_layers(problem, schedule)
    spans = _spans(problem, schedule)
    makespan = makespan_us(spans)
    memory = [_memory(problem, schedule, spans, stage, count) for stage, count in enumerate(layers)]
    peaks = [max(levels, key=lambda level: (level[1], -level[0])) for levels in memory]
    fullest = max(range(len(peaks)), key=lambda stage: peaks[stage][1])
    busy: Counter[str] = Counter()
    for span in spans.values():
        busy[span.lane] += round(span.end_us - span.start_us) if span.lane.endswith(".compute") else 0
    return Report(
        name=problem.name,
        how="simulated",
        source=f"solvers.timeline.pipeline.simulated, {problem.order}; memory of stage {fullest}",
        makespan_us=makespan,
        base_us=_base_us(problem, layers),
        budget_bytes=problem.stages[fullest].budget_bytes,
        peak_bytes=peaks[fullest][1],
        peak_at_us=peaks[fullest][0],
        stall_us={f"bubble of stage {p}": makespan - busy[f"{p}.compute"] for p in range(len(layers))},
        spans=tuple(spans.values()),
        memory=memory[fullest],
    )


def stage_layers(problem: PipelineProblem, schedule: Schedule) -> list[int]:
    """How many layers each stage of a schedule has; raises `InvalidProblem` where they are not the problem's."""
    steps = layer_passes(problem)["forward"].steps
    found = [0] * len(problem.stages)
    for action in schedule.actions:
        rank = int(action.lane.split(".")[0])
        if rank >= len(found):
            raise InvalidProblem(
                f"action {action.id} runs on {action.lane}, but there are {len(found)} stages: lower a plan of this"
            )
        if action.do == "compute" and action.direction == "forward" and action.op is not None:
            found[rank] = max(found[rank], action.op // steps + 1)
    if sum(found) != problem.layers:
        raise InvalidProblem(
            f"the schedule runs {sum(found)} layers, the problem has {problem.layers}: lower a plan of this problem"
        )
    return found


def _base_us(problem: PipelineProblem, layers: list[int]) -> int:
    return int(
        pipeline_makespan_us(
            [n * problem.forward_us + own.extra_us[0] for n, own in zip(layers, problem.stages, strict=True)],
            [n * problem.backward_us + own.extra_us[1] for n, own in zip(layers, problem.stages, strict=True)],
            microbatches=problem.microbatches,
            p2p_us=problem.p2p_us,
            how=Discipline(order=problem.order),
        )
    )


def _spans(problem: PipelineProblem, schedule: Schedule) -> dict[int, Span]:
    """As `run_lanes`, but a message arrives `p2p_us` after its send has ended, however many are under way."""
    durations = _Durations(problem)
    spans: dict[int, Span] = {}
    free: dict[str, float] = {}
    for action in schedule.order():
        start = max([free.get(action.lane, 0), *(spans[before].end_us for before in action.after)])
        end = start + durations.of(action)
        if action.do == "recv":
            sent = max((spans[before].end_us for before in action.after), default=start)
            end = max(start, sent + problem.p2p_us)
        free[action.lane] = end
        spans[action.id] = Span(action=action.id, lane=action.lane, label=label(action), start_us=start, end_us=end)
    return {action.id: spans[action.id] for action in schedule.actions}


class _Durations:
    """How long actions take, messages aside."""

    def __init__(self, problem: PipelineProblem) -> None:
        self.problem, self.passes = problem, layer_passes(problem)

    def of(self, action: Action) -> int:
        """Its time on its lane; raises `InvalidProblem` for what no pipeline schedule does."""
        if action.do in ("release", "collective_wait", "send", "recv"):
            return 0
        if action.do == "recompute" and action.op is not None:
            return self.problem.ops[action.op % len(self.problem.ops)].time_us
        if action.do in ("compute", "collective_start") and action.direction in ("forward", "backward"):
            cut = self.passes[str(action.direction)]
            if action.op is None:
                extra = self.problem.stages[int(action.lane.split(".")[0])].extra_us
                return extra[action.direction == "backward"]
            step = action.op % cut.steps
            if action.do == "compute":
                return cut.stretch_us[step]
            if step < len(cut.collective_us):
                return cut.collective_us[step]
        raise InvalidProblem(f"action {action.text()!r} is none of a pipeline schedule: lower a plan of this problem")


def _memory(problem: PipelineProblem, schedule: Schedule, spans: dict[int, Span], stage: int, layers: int) -> Levels:
    """Bytes in use of a stage at each change: from the start of what makes them to the end of their release."""
    own = problem.stages[stage]
    level = own.static_bytes + layers * own.layer_static_bytes
    levels = [(0.0, level)]
    for action in schedule.actions:
        if action.lane == f"{stage}.compute" and action.bytes:
            gone = action.do == "release"
            level += -action.bytes if gone else action.bytes
            levels.append((spans[action.id].end_us if gone else spans[action.id].start_us, level))
    return tuple(levels)
