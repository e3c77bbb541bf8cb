"""What a swap schedule would do: transfers on their lanes, memory over time, stalls by cause (README)."""

from solvers.ir.errors import InvalidProblem
from solvers.ir.report import Report, Span
from solvers.ir.schedule import Action, Schedule
from solvers.ir.swap import SwapProblem
from solvers.timeline.lanes import run_lanes
from solvers.timeline.launched import Launched, base_us, run_launched

Levels = tuple[tuple[float, int], ...]
"""(time in us, bytes in use from then on)."""


def simulate_swap(problem: SwapProblem, schedule: Schedule) -> Report:
    """The report of a swap schedule; raises `InvalidProblem` where it is not a schedule of this problem."""
    _require_ops(problem, schedule)
    lane = [action for action in schedule.actions if action.do in ("compute", "release")]
    if problem.has_launches or problem.link.latency_ns is not None:
        run = run_launched(problem, schedule)
    else:
        spans = run_lanes(schedule, lambda action: _duration_us(problem, action))
        run = Launched(spans, spans[lane[-1].id].end_us, _stalls(lane, spans), 0.0)
    levels = _levels(problem, schedule, lane, run.spans)
    peak_at, peak = max(levels, key=lambda level: (level[1], -level[0]))
    return Report(
        name=problem.name,
        how="simulated",
        source="solvers.timeline",
        makespan_us=run.makespan_us,
        base_us=base_us(problem.ops),
        budget_bytes=problem.budget_bytes,
        peak_bytes=peak,
        peak_at_us=peak_at,
        stall_us=run.stall_us,
        launch_us=run.launch_us if problem.has_launches else None,
        spans=tuple(run.spans.values()),
        memory=tuple(dict(levels).items()),  # of two levels at one time the later one lasts; the peak counts both
    )


def _require_ops(problem: SwapProblem, schedule: Schedule) -> None:
    """Refuse what has no timeline: missing ops, foreign actions, unknown tensors (order is judged elsewhere)."""
    computed = [action.op for action in schedule.actions if action.do == "compute"]
    if computed != list(range(len(problem.ops))):
        raise InvalidProblem(
            f"the schedule computes {len(computed)} ops, not each of the problem's {len(problem.ops)} once and in "
            f"order: lower a plan of this problem"
        )
    known = {tensor.id for tensor in problem.tensors}
    for action in schedule.actions:
        if action.do not in ("compute", "release", "swap_out", "swap_in"):
            raise InvalidProblem(f"action {action.id} does {action.do}, which no swap schedule does: drop it")
        if action.op is None or action.op >= len(problem.ops):
            raise InvalidProblem(f"action {action.id} belongs to op {action.op}: name one of 0…{len(problem.ops) - 1}")
        unknown = sorted(str(name) for name in action.data if name not in known)
        if unknown:
            raise InvalidProblem(f"action {action.id} names tensor {unknown[0]}, which the problem lacks: correct it")


def _duration_us(problem: SwapProblem, action: Action) -> int:
    if action.do == "swap_out":
        return problem.link.out_us(action.bytes)
    if action.do == "swap_in":
        return problem.link.in_us(action.bytes)
    return problem.ops[action.op].time_us if action.do == "compute" and action.op is not None else 0


def _levels(problem: SwapProblem, schedule: Schedule, lane: list[Action], spans: dict[int, Span]) -> Levels:
    """Bytes in use: a release frees when it is due; an op's memory, and the swap-ins before it, count from then on.

    The memory of op j is `memory_bytes[j]` less what has been released and returns before a later op. It counts from
    the end of the compute lane's action before op j: that is when op j's allocations may use what was freed.
    """
    sizes = {tensor.id: tensor.bytes for tensor in problem.tensors}
    returns = {name: action.op or 0 for action in schedule.actions if action.do == "swap_in" for name in action.data}
    back = [0] * (len(problem.ops) + 1)
    absent, op, now = 0, 0, 0.0
    levels: list[tuple[float, int]] = []
    for action in lane:
        if action.do == "release":
            now = spans[action.id].end_us
            absent += action.bytes
            levels.append((now, max(0, problem.memory_bytes[max(op - 1, 0)] - absent)))
            for name in action.data:
                back[returns.get(name, len(problem.ops))] += sizes[name]
            continue
        absent -= back[op]
        levels.append((now, max(0, problem.memory_bytes[op] - absent)))
        now, op = spans[action.id].end_us, op + 1
    return tuple(levels)


def _stalls(lane: list[Action], spans: dict[int, Span]) -> dict[str, float]:
    """Idle time of the compute lane: before a release it waits for a swap-out, before an op for a swap-in."""
    stalls: dict[str, float] = {"swap_in": 0, "swap_out": 0}
    free = 0.0
    for action in lane:
        stalls["swap_out" if action.do == "release" else "swap_in"] += spans[action.id].start_us - free
        free = spans[action.id].end_us
    return stalls
