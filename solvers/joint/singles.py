"""The single techniques on the same problem, by their own rooms' solvers: swapping alone, recomputation alone."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from solvers.ir.solution import Limits, Watch
from solvers.ir.swap import Swap, SwapOp, SwapPlan, SwapProblem, SwapTensor
from solvers.joint.choice import keep_all
from solvers.joint.draft import Away, Draft, Kept, kept_of
from solvers.joint.given import Given, recompute_half
from solvers.recompute.graph.opt.solver import Opt
from solvers.swap.greedy import GreedySwap
from solvers.swap.milp import MilpSwap


def swap_only(given: Given, limits: Limits, watch: Watch | None = None, quick: bool = False) -> Draft | None:
    """The plan of `milp-swap` (`quick`: `greedy-swap`) where nothing is computed again; None where it finds none."""
    return swapped(given, Draft(keep_all(given).again), limits, watch, quick)


def swapped(
    given: Given, draft: Draft, limits: Limits, watch: Watch | None = None, quick: bool = False
) -> Draft | None:
    """The draft's recomputations with the swaps of `milp-swap`, from its own on where they are valid."""
    kept = kept_of(given, draft.again)
    problem, spans = swap_problem(given, kept)
    if not spans:
        return None
    start = SwapPlan(
        swaps=tuple(
            Swap(tensor=f"{away.op}/{away.out_after}", swap_in_at=away.in_at)
            for away in draft.away
            if f"{away.op}/{away.out_after}" in spans
        )
    )
    solver = GreedySwap() if quick else MilpSwap(start=start if draft.away else None)
    plan = solver.solve(problem, limits, watch).plan
    if plan is None:
        return None
    return Draft(draft.again, tuple(Away(*spans[str(swap.tensor)], swap.swap_in_at) for swap in plan.swaps))


def swap_problem(given: Given, kept: Kept) -> tuple[SwapProblem, Mapping[str, tuple[int, int]]]:
    """The swap half as a problem of its kind: a stage for an op, a gap where memory is short for a tensor.

    Stages that take no time take a microsecond there, and sharing the link is not known: what comes back is measured.
    """
    busy = [0]
    for peak in kept.peaks:
        busy.append(busy[-1] + (peak > given.budget))
    tensors, spans = [], {}
    for i, stages in enumerate(kept.touched):
        for a, b in pairwise(stages):
            if given.graph.size[i] and i not in kept.runs[b] and busy[b] > busy[a + 1]:
                name = f"{i}/{a}"
                spans[name] = i, a
                tensors.append(SwapTensor(id=name, bytes=given.graph.size[i], last_forward_use=a, first_backward_use=b))
    problem = SwapProblem(
        name=given.problem.name,
        budget_bytes=given.budget,
        ops=tuple(
            _stage(given, t, sorted(run), ticks)
            for t, (run, ticks) in enumerate(zip(kept.runs, kept.ticks, strict=True))
        ),
        memory_bytes=tuple(kept.peaks),
        tensors=tuple(tensors),
        link=given.link,
        launch_us=given.problem.launch_us,
        host_budget_bytes=given.host,
    )
    return problem, spans


def _stage(given: Given, t: int, run: Sequence[int], ticks: int) -> SwapOp:
    """A stage as an op of kind `swap`, with what launching it takes."""
    told = given.told(t) // given.ticks
    time, name = max(1, ticks // given.ticks) + told, given.problem.ops[t].name
    if not given.launched:
        return SwapOp(name=name, time_us=time, phase="forward")
    launch, tail = (ticks // given.ticks for ticks in given.launched_as(t, run))
    return SwapOp(
        name=name, time_us=time, phase="forward", launch_us=launch, tail_us=min(time, tail + told),
        host_waits=given.host_stops(t),
    )  # fmt: skip


def recompute_only(given: Given, limits: Limits, watch: Watch | None = None) -> Draft | None:
    """The plan of `opt` where nothing leaves; None where it finds none."""
    plan = Opt().solve(recompute_half(given.problem), limits, watch).plan
    if plan is None:
        return None
    again: list[set[int]] = [set() for _ in range(len(given))]
    for t, i in plan.compute:
        if i != t:
            again[t].add(i)
    return Draft(again)
