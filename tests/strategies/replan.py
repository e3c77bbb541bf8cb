"""Random `replan` problems and plans."""

from hypothesis import strategies as st

from solvers.ir import (
    CurrentPipeline,
    CurrentState,
    NewPipeline,
    ReplanPlan,
    ReplanProblem,
    Transfer,
)
from tests.strategies.common import names, splits


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
