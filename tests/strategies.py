"""Random small problems and plans of every kind, shared by all tests: well-formed, shrinking towards the plainest."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any, Literal, get_args

from hypothesis import strategies as st

from solvers.ir import (
    CurrentPipeline,
    CurrentState,
    JointPlan,
    JointProblem,
    LayerGroup,
    LayerOp,
    LayoutBlock,
    LayoutChunk,
    LayoutPlan,
    LayoutProblem,
    NewPipeline,
    PartitionPlan,
    PartitionProblem,
    PipelinePlan,
    PipelineProblem,
    PipelineStage,
    Plan,
    Problem,
    RecomputeGraphPlan,
    RecomputeGraphProblem,
    RecomputeLayerPlan,
    RecomputeLayerProblem,
    RecomputeOp,
    ReplanPlan,
    ReplanProblem,
    StagePolicies,
    Swap,
    SwapLink,
    SwapOp,
    SwapPlan,
    SwapProblem,
    SwapTensor,
    Transfer,
    Window,
)
from solvers.ir.graph import Phase
from solvers.ir.layout import POLICIES
from solvers.ir.pipeline import HideInStalls, PassOrder
from solvers.joint.draft import plan_of
from solvers.kinds import KINDS
from solvers.partition.stages import layer_problem_of
from tests.solvers.joint.brute_force import random_problem
from tests.solvers.joint.drafts import random_draft

names = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=8)
"""Any text that UTF-8 holds, spaces, commas, quotes and line ends included."""

tensor_ids = st.one_of(st.integers(0, 99), names)


@st.composite
def swap_problems(draw: st.DrawFn, max_ops: int = 6, max_tensors: int = 4, plain: bool = False) -> SwapProblem:
    """Two to `max_ops` ops; the memory contains each tensor between its uses; budgets from too small to ample.

    The link moves 1 to 4 bytes per microsecond, so that transfers of 0 to 9 bytes and ops of 1 to 9 us contend. Half of
    them count launches, of up to 9 us an op and 3 us a transfer, and half count transfers in nanoseconds; `plain` ones
    do neither.
    """
    count = draw(st.integers(2, max_ops))
    launch_us = 0 if plain else draw(st.just(0) | st.integers(1, 3))
    ops = _launched_swap_ops() if launch_us else _swap_ops()
    tensors = draw(_swap_tensors(count, max_tensors))
    extra = draw(st.lists(st.integers(0, 6), min_size=count, max_size=count))
    memory = tuple(
        extra[j] + sum(t.bytes for t in tensors if t.last_forward_use <= j <= t.first_backward_use)
        for j in range(count)
    )
    needed = max(
        memory[j] - sum(t.bytes for t in tensors if t.last_forward_use < j < t.first_backward_use) for j in range(count)
    )
    return SwapProblem(
        name=draw(names),
        budget_bytes=max(0, draw(st.integers(needed - 2, max(memory) + 1))),
        ops=tuple(draw(st.lists(ops, min_size=count, max_size=count))),
        memory_bytes=memory,
        tensors=tensors,
        link=draw(_swap_links(plain)),
        launch_us=launch_us,
    )


@st.composite
def _launched_swap_ops(draw: st.DrawFn) -> SwapOp:
    phases: list[Phase] = ["forward", "backward", "optimizer"]
    time = draw(st.integers(0, 9))
    return SwapOp(
        name=draw(names),
        time_us=time,
        phase=draw(st.sampled_from(phases)),
        launch_us=draw(st.integers(0, 9)),
        tail_us=draw(st.none() | st.integers(0, time)),
        host_waits=draw(st.booleans()),
    )


def _swap_ops() -> st.SearchStrategy[SwapOp]:
    phases: list[Phase] = ["forward", "backward", "optimizer"]
    return st.builds(SwapOp, name=names, time_us=st.integers(1, 9), phase=st.sampled_from(phases))


def _swap_links(plain: bool) -> st.SearchStrategy[SwapLink]:
    rates = st.integers(1, 4).map(lambda rate: rate * 1_000_000)
    whole = st.builds(SwapLink, out_bytes_per_s=rates, in_bytes_per_s=rates, latency_us=st.integers(0, 2))
    return (
        whole
        if plain
        else whole | st.builds(_fine_swap_link, st.integers(900_000, 4_000_000), rates, st.integers(0, 2000))
    )


def _fine_swap_link(out_bytes_per_s: int, in_bytes_per_s: int, latency_ns: int) -> SwapLink:
    """A link that counts nanoseconds."""
    whole = -(-latency_ns // 1000)
    return SwapLink(
        out_bytes_per_s=out_bytes_per_s, in_bytes_per_s=in_bytes_per_s, latency_us=whole, latency_ns=latency_ns
    )


@st.composite
def _swap_tensors(draw: st.DrawFn, ops: int, max_tensors: int) -> tuple[SwapTensor, ...]:
    ids: list[Any] = draw(st.lists(tensor_ids, max_size=max_tensors, unique=True))
    tensors = []
    for name in ids:
        a = draw(st.integers(0, ops - 2))
        b = draw(st.integers(a + 1, ops - 1))
        tensors.append(SwapTensor(id=name, bytes=draw(st.integers(0, 9)), last_forward_use=a, first_backward_use=b))
    return tuple(tensors)


@st.composite
def swap_plans(draw: st.DrawFn, problem: SwapProblem) -> SwapPlan:
    """A well-formed decision for the problem, in any list order; it may still exceed the budget."""
    chosen = draw(st.permutations([t for t in problem.tensors if draw(st.booleans())]))
    return SwapPlan(
        swaps=tuple(
            Swap(tensor=t.id, swap_in_at=draw(st.integers(t.last_forward_use + 1, t.first_backward_use)))
            for t in chosen
        )
    )


@st.composite
def partition_problems(draw: st.DrawFn, max_stages: int = 4, max_layers: int = 6) -> PartitionProblem:
    """Cost tables with and without nulls; some have no valid partition."""
    stages, layers = draw(st.integers(1, max_stages)), draw(st.integers(1, max_layers))
    row = st.lists(st.none() | st.integers(0, 20), min_size=layers + 1, max_size=layers + 1).map(tuple)
    return PartitionProblem(
        name=draw(names),
        stages=stages,
        layers=layers,
        cost_us=tuple(draw(st.lists(row, min_size=stages, max_size=stages))),
    )


def partition_plans(problem: PartitionProblem) -> st.SearchStrategy[PartitionPlan]:
    """Counts for each stage; they need not sum to the problem's layers, nor fit."""
    counts = st.lists(st.integers(1, problem.layers), min_size=problem.stages, max_size=problem.stages)
    return counts.map(lambda layers: PartitionPlan(layers=tuple(layers)))


def _earlier(index: int) -> st.SearchStrategy[tuple[int, ...]]:
    if index == 0:
        return st.just(())
    return st.lists(st.integers(0, index - 1), max_size=2, unique=True).map(tuple)


@st.composite
def recompute_graph_problems(draw: st.DrawFn, max_ops: int = 5) -> RecomputeGraphProblem:
    """Small graphs with communication; budgets from too small to ample."""
    count = draw(st.integers(1, max_ops))
    ops = tuple(
        RecomputeOp(
            name=draw(names),
            time_us=draw(st.integers(0, 9)),
            output_bytes=draw(st.integers(0, 5)),
            inputs=draw(_earlier(index)),
            comm=draw(st.booleans()),
        )
        for index in range(count)
    )
    static, total = draw(st.integers(0, 3)), sum(op.output_bytes for op in ops)
    budget = static + draw(st.integers(0, total + 1))
    return RecomputeGraphProblem(name=draw(names), budget_bytes=budget, static_bytes=static, ops=ops)


@st.composite
def recompute_graph_plans(draw: st.DrawFn, problem: RecomputeGraphProblem) -> RecomputeGraphPlan:
    """Any lower-triangular pair of matrices with the diagonal computed."""
    pairs = [(t, i) for t in range(len(problem.ops)) for i in range(t)]
    choice = [draw(st.sampled_from(["compute", "keep", "neither"])) for _ in pairs]
    diagonal = [(t, t) for t in range(len(problem.ops))]
    return RecomputeGraphPlan(
        compute=tuple(diagonal + [pair for pair, how in zip(pairs, choice, strict=True) if how == "compute"]),
        keep=tuple(pair for pair, how in zip(pairs, choice, strict=True) if how == "keep"),
    )


@st.composite
def recompute_layer_problems(draw: st.DrawFn, max_ops: int = 5, max_windows: int = 3) -> RecomputeLayerProblem:
    """A small layer with any number of windows; budgets from too small to ample."""
    phases: list[Literal["forward", "backward", "stall"]] = ["forward", "backward", "stall"]
    windows = st.builds(Window, name=names, phase=st.sampled_from(phases), time_us=st.integers(0, 9))
    ops = tuple(
        LayerOp(
            name=draw(names),
            time_us=draw(st.integers(0, 9)),
            output_bytes=draw(st.integers(0, 5)),
            inputs=draw(_earlier(index)),
            comm=draw(st.booleans()),
            needed=draw(st.booleans()),
        )
        for index in range(draw(st.integers(1, max_ops)))
    )
    return RecomputeLayerProblem(
        name=draw(names),
        layers=draw(st.integers(1, 4)),
        inflight_microbatches=draw(st.integers(1, 3)),
        last_stage=draw(st.booleans()),
        budget_bytes=draw(st.integers(0, 200)),
        static_bytes=draw(st.integers(0, 3)),
        layer_input_bytes=draw(st.integers(0, 3)),
        windows=tuple(draw(st.lists(windows, max_size=max_windows))),
        ops=ops,
    )


@st.composite
def recompute_layer_plans(draw: st.DrawFn, problem: RecomputeLayerProblem) -> RecomputeLayerPlan:
    """One or two groups; each op stored, recomputed somewhere, or neither."""
    parts = [problem.layers]
    if problem.layers > 1 and draw(st.booleans()):
        first = draw(st.integers(1, problem.layers - 1))
        parts = [first, problem.layers - first]
    return RecomputeLayerPlan(groups=tuple(draw(_layer_groups(problem, count)) for count in parts))


@st.composite
def _layer_groups(draw: st.DrawFn, problem: RecomputeLayerProblem, layers: int) -> LayerGroup:
    place = [draw(st.integers(-2, len(problem.windows))) for _ in problem.ops]
    return LayerGroup(
        layers=layers,
        stored=tuple(i for i, w in enumerate(place) if w == -1),
        recomputed=tuple((i, w) for i, w in enumerate(place) if w >= 0),
    )


@st.composite
def pipeline_problems(draw: st.DrawFn, max_stages: int = 3) -> PipelineProblem:
    """A few small layers on a few stages; budgets from too small to ample."""
    layer = draw(recompute_layer_problems())
    windows = sorted((w for w in layer.windows if w.phase != "stall"), key=lambda w: w.phase, reverse=True)
    size = sum(op.output_bytes for op in layer.ops) + layer.layer_input_bytes
    stages = draw(st.lists(_pipeline_stages(size), min_size=1, max_size=max_stages))
    return PipelineProblem(
        name=draw(names),
        layers=len(stages) + draw(st.integers(0, 3)),
        microbatches=draw(st.integers(1, 4)),
        order=draw(st.sampled_from(get_args(PassOrder))),
        p2p_us=draw(st.integers(0, 5)),
        layer_input_bytes=layer.layer_input_bytes,
        ops=layer.ops,
        windows=tuple(windows),
        backward_us=draw(st.integers(0, 40)),
        stages=tuple(stages),
    )


def _pipeline_stages(size: int) -> st.SearchStrategy[PipelineStage]:
    return st.builds(
        PipelineStage,
        budget_bytes=st.integers(0, 12 * size + 9),
        static_bytes=st.integers(0, 3),
        layer_static_bytes=st.integers(0, 2),
        extra_us=st.tuples(st.integers(0, 5), st.integers(0, 5)),
        extra_bytes=st.integers(0, 2),
    )


@st.composite
def pipeline_plans(draw: st.DrawFn, problem: PipelineProblem) -> PipelinePlan:
    """Every layer on some stage; what each stage's layers do need not be valid."""
    depth = len(problem.stages)
    layers = draw(splits(problem.layers, depth)) if depth > 1 else (problem.layers,)
    own = [draw(recompute_layer_plans(layer_problem_of(problem, p, n))).groups for p, n in enumerate(layers)]
    return PipelinePlan(
        layers=layers,
        stages=tuple(StagePolicies(groups=groups) for groups in own),
        hide_in_stalls=draw(st.sampled_from(get_args(HideInStalls))),
    )


@st.composite
def splits(draw: st.DrawFn, total: int, parts: int) -> tuple[int, ...]:
    """`total` in `parts` positive parts, in order."""
    cuts = sorted(draw(st.lists(st.integers(1, total - 1), min_size=parts - 1, max_size=parts - 1, unique=True)))
    return tuple(after - before for before, after in pairwise([0, *cuts, total]))


@st.composite
def replan_problems(draw: st.DrawFn, failure: bool | None = None) -> ReplanProblem:
    """Small clusters, with (`failure=True`), without, or either; the current pipelines are alike or not."""
    layers, microbatches = draw(st.integers(2, 6)), draw(st.integers(2, 6))
    extras = st.tuples(st.integers(0, 3), st.integers(0, 3))
    fails = draw(st.booleans()) if failure is None else failure
    current = draw(_current_states(layers, microbatches)) if fails else None
    alive = 0 if current is None else sum(len(p.nodes) for p in current.pipelines) - len(current.failed)
    return ReplanProblem(
        name=draw(names),
        nodes=max(1, alive + draw(st.integers(0, 2))) if fails else draw(st.integers(1, 6)),
        microbatches=microbatches,
        layers=layers,
        forward_us=draw(st.integers(1, 5)),
        backward_us=draw(st.integers(1, 9)),
        first_extra_us=draw(extras),
        last_extra_us=draw(extras),
        p2p_us=draw(st.integers(0, 2)),
        sync_us=draw(st.integers(0, 5)),
        layer_sync_us=draw(st.integers(0, 2)),
        memory_bytes=draw(st.integers(0, 300)),
        layer_static_bytes=draw(st.integers(0, 9)),
        layer_activation_bytes=draw(st.integers(0, 3)),
        first_static_bytes=draw(st.integers(0, 3)),
        last_static_bytes=draw(st.integers(0, 3)),
        max_depth=draw(st.integers(1, 4)),
        data_parallel=draw(st.none() | (st.integers(1, min(3, microbatches)) if current is None else _degree(current))),
        current=current,
        restart_us=draw(st.integers(0, 50)) if fails else None,
        bytes_per_s=draw(st.integers(1, 4).map(lambda rate: rate * 1_000_000)) if fails else None,
        expected_interval_us=draw(st.integers(1, 500)) if fails else None,
    )


def _degree(current: CurrentState) -> st.SearchStrategy[int]:
    return st.just(len(current.pipelines))


@st.composite
def _current_states(draw: st.DrawFn, layers: int, microbatches: int) -> CurrentState:
    degree = draw(st.integers(1, min(2, microbatches)))
    shares = draw(splits(microbatches, degree))
    shape = draw(splits(layers, draw(st.integers(1, min(3, layers)))))
    alike = draw(st.booleans())
    pipelines: list[CurrentPipeline] = []
    free = 0
    for share in shares:
        stages = shape if alike else draw(splits(layers, draw(st.integers(1, min(3, layers)))))
        nodes = tuple(range(free, free + len(stages)))
        pipelines.append(CurrentPipeline(layers=stages, nodes=nodes, microbatches=share))
        free += len(stages)
    failed = draw(st.lists(st.integers(0, free - 1), max_size=2, unique=True))
    return CurrentState(pipelines=tuple(pipelines), failed=tuple(failed))


@st.composite
def replan_plans(draw: st.DrawFn, problem: ReplanProblem) -> ReplanPlan:
    """Either policy; pipelines of any depth on any nodes, transfers at random."""
    if draw(st.booleans()):
        return ReplanPlan(policy="reroute", pipelines=(), transfers=None)
    degree = draw(st.integers(1, min(2, problem.microbatches)))
    pipelines = []
    for share in draw(splits(problem.microbatches, degree)):
        stages = draw(splits(problem.layers, draw(st.integers(1, min(3, problem.layers)))))
        nodes = st.lists(st.integers(0, 8), min_size=len(stages), max_size=len(stages), unique=True).map(tuple)
        pipelines.append(NewPipeline(layers=stages, microbatches=share, nodes=draw(st.none() | nodes)))
    transfer = st.builds(
        Transfer, layer=st.integers(0, problem.layers - 1), source=st.integers(0, 8), target=st.integers(0, 8)
    )
    transfers = st.none() | st.lists(transfer, max_size=3).map(tuple)
    return ReplanPlan(policy="dynamic", pipelines=tuple(pipelines), transfers=draw(transfers))


@st.composite
def layout_problems(draw: st.DrawFn, max_blocks: int = 5, max_chunks: int = 4) -> LayoutProblem:
    """Few blocks and chunks, tied and frozen ones among them; device and host memory from too small to ample."""
    ranks, count = draw(st.integers(1, 2)), draw(st.integers(1, max_chunks))
    chunks = tuple(draw(_layout_chunks(ranks)) for _ in range(count))
    uses: list[set[int]] = [
        set(draw(st.lists(st.integers(0, count - 1), max_size=2))) for _ in range(draw(st.integers(1, max_blocks)))
    ]
    for index in range(count):
        if not any(index in used for used in uses):
            uses[index * len(uses) // count].add(index)
    blocks = tuple(draw(_layout_blocks(tuple(sorted(used)))) for used in uses)
    size = draw(st.integers(1, 4))
    device = sum(size + chunk.persistent_bytes for chunk in chunks) + sum(b.activation_bytes for b in blocks) + 8
    host = sum(chunk.host_bytes for chunk in chunks) + sum(block.activation_bytes for block in blocks)
    return LayoutProblem(
        name=draw(names),
        device_bytes=draw(st.just(device) | st.integers(0, device)),
        host_bytes=draw(st.just(host) | st.integers(0, host)),
        ranks=ranks,
        fixed_bytes=draw(st.integers(0, 3)),
        chunk_bytes=size,
        interval=draw(st.integers(1, 3)),
        overlap_update=draw(st.booleans()),
        chunks=chunks,
        blocks=blocks,
    )


@st.composite
def _layout_chunks(draw: st.DrawFn, ranks: int) -> LayoutChunk:
    trainable = draw(st.integers(0, 3)) > 0
    time, none = st.integers(0, 6), st.just(0)
    return LayoutChunk(
        trainable=trainable,
        load_us=draw(time),
        gather_us=draw(time if ranks > 1 else none),
        reduce_us=draw(time if trainable and ranks > 1 else none),
        offload_us=draw(time if trainable else none),
        cpu_update_us=draw(time if trainable else none),
        allreduce_us=draw(time if trainable and ranks > 1 else none),
        device_update_us=draw(time if trainable else none),
        persistent_bytes=draw(st.integers(0, 6)),
        host_bytes=draw(st.integers(0, 6)),
    )


def _layout_blocks(chunks: tuple[int, ...]) -> st.SearchStrategy[LayoutBlock]:
    return st.builds(
        LayoutBlock,
        name=names,
        forward_us=st.integers(0, 6),
        backward_us=st.integers(0, 9),
        activation_bytes=st.integers(0, 9),
        input_bytes=st.integers(0, 3),
        forward_transient_bytes=st.integers(0, 4),
        backward_transient_bytes=st.integers(0, 4),
        chunks=st.just(chunks),
        swap_out_us=st.integers(0, 9),
        swap_in_us=st.integers(0, 9),
        choice=st.integers(0, 4).map(bool),
    )


@st.composite
def layout_plans(draw: st.DrawFn, problem: LayoutProblem) -> LayoutPlan:
    """Any persistent chunks, buffers from none to too many, any policy where there is a choice."""
    count = len(problem.chunks)
    return LayoutPlan(
        persistent=tuple(sorted(draw(st.sets(st.integers(0, count - 1))))),
        buffers=draw(st.integers(0, count + 1)),
        policies=tuple(draw(st.sampled_from(POLICIES)) if b.choice else "keep" for b in problem.blocks),
    )


def joint_problems() -> st.SearchStrategy[JointProblem]:
    """Tiny problems of all sorts, as the kind's brute force has them."""
    return st.builds(random_problem, st.integers(0, 2**20))


def joint_plans(problem: JointProblem) -> st.SearchStrategy[JointPlan]:
    """Some recomputations and swaps; most exceed the budget or lack an input."""
    return st.integers(0, 2**20).map(lambda seed: plan_of(*random_draft(problem, seed)))


def _of(kind: str, what: str) -> Callable[..., Any]:
    """This file's strategy for a kind: `<kind>_problems()` or `<kind>_plans(problem)`."""
    strategy: Callable[..., Any] = globals()[f"{kind.replace('-', '_')}_{what}"]
    return strategy


problems: st.SearchStrategy[Problem] = st.one_of(*(_of(kind, "problems")() for kind in KINDS))
"""A problem of any kind."""


def plans(problem: Problem) -> st.SearchStrategy[Plan]:
    """A well-formed plan of the problem's kind, valid or not."""
    found: st.SearchStrategy[Plan] = _of(problem.KIND, "plans")(problem)
    return found
