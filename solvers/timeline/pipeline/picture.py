"""A pipeline's times as a `Report`, for drawing, and its order as a `Schedule`."""

from collections.abc import Iterator, Sequence

from solvers.ir.errors import InvalidInput
from solvers.ir.report import Report, Span
from solvers.ir.schedule import Action, Schedule
from solvers.timeline.pipeline.inputs import Discipline
from solvers.timeline.pipeline.memory import StageMemory
from solvers.timeline.pipeline.order import stage_order
from solvers.timeline.pipeline.times import PipelineTimes, pipeline_makespan_us


def pipeline_report(
    times: PipelineTimes, memory: Sequence[StageMemory] = (), name: str = "pipeline", budget_bytes: int | None = None
) -> Report:
    """One pipeline's step: a compute lane for each stage, its bubble as a stall, the fullest stage's memory.

    The base is the makespan without recomputation. Span ids are those of `pipeline_schedule(times)`.
    """
    schedule = pipeline_schedule(times)
    fullest = max(memory, key=lambda stage: stage.peak_bytes, default=None)
    of_stage = "" if fullest is None else f"; memory of stage {list(memory).index(fullest)}"
    base = pipeline_makespan_us(
        times.forward_us,
        times.backward_us,
        microbatches=times.microbatches,
        p2p_us=times.p2p_us,
        how=Discipline(order=times.order),
    )
    return Report(
        name=name,
        how="simulated",
        source=f"solvers.timeline.pipeline.times, {times.order}, {times.microbatches} microbatches{of_stage}",
        makespan_us=int(times.makespan_us),
        base_us=int(base),
        budget_bytes=budget_bytes,
        peak_bytes=0 if fullest is None else fullest.peak_bytes,
        peak_at_us=0 if fullest is None else fullest.peak_at_us,
        stall_us={f"bubble of stage {stage}": int(us) for stage, us in enumerate(times.stall_us)},
        spans=tuple(_spans(times, schedule)),
        memory=() if fullest is None else fullest.levels,
    )


def _spans(times: PipelineTimes, schedule: Schedule) -> Iterator[Span]:
    for action in schedule.actions:
        stage, number, kind = int(action.lane.split(".")[0]), action.microbatch, _kind(action, times.stages)
        starts = {
            "forward": times.forward_start_us,
            "recompute": times.recompute_start_us,
            "backward": times.backward_start_us,
        }[kind]
        ends = {
            "forward": times.forward_end_us,
            "recompute": times.recompute_end_us,
            "backward": times.backward_end_us,
        }[kind]
        yield Span(
            action=action.id,
            lane=action.lane,
            label=f"{kind} microbatch {number}",
            start_us=int(starts[stage, number]),
            end_us=int(ends[stage, number]),
        )


def _kind(action: Action, depth: int) -> str:
    if action.do == "recompute":
        return "recompute"
    return "forward" if action.op is not None and action.op < depth else "backward"


def pipeline_schedule(times: PipelineTimes) -> Schedule:
    """The same step as a schedule: lanes `p.compute`, what waits for what across stages, no messages.

    Op p is the forward pass of stage p, op 2P − 1 − p its backward pass: their order in a microbatch's life.
    """
    if times.forward_us.ndim != 1:
        raise InvalidInput(f"the times are of a batch of shape {times.forward_us.shape[:-1]}: give one pipeline's")
    actions = [action for stage in range(times.stages) for action in _actions(times, stage)]
    return Schedule(lanes=tuple(f"{stage}.compute" for stage in range(times.stages)), actions=tuple(actions))


def _actions(times: PipelineTimes, stage: int) -> Iterator[Action]:
    """A stage's actions; recomputation that started before the gradient came waits for nothing."""
    depth, lane = times.stages, f"{stage}.compute"
    for one in stage_order(stage, depth, times.microbatches, times.order):
        number = one.microbatch
        if one.kind == "forward":
            after = (_id(times, stage - 1, number, 0),) if stage else ()
            yield Action(
                id=_id(times, stage, number, 0), lane=lane, do="compute", op=stage, microbatch=number, after=after
            )
            continue
        op = 2 * depth - 1 - stage
        after = (_id(times, stage + 1, number, 2),) if stage + 1 < depth else ()
        if times.recompute_us[stage, number]:
            early = bool(times.recompute_start_us[stage, number] < times.gradient_us[stage, number])
            yield Action(
                id=_id(times, stage, number, 1),
                lane=lane,
                do="recompute",
                op=op,
                microbatch=number,
                after=() if early else after,
            )
            after = after if early else ()
        yield Action(id=_id(times, stage, number, 2), lane=lane, do="compute", op=op, microbatch=number, after=after)


def _id(times: PipelineTimes, stage: int, number: int, part: int) -> int:
    """Forward, recompute and backward of a microbatch on a stage are parts 0, 1, 2."""
    return (stage * times.microbatches + number) * 3 + part
