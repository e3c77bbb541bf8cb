"""The baselines: what each rule decides by hand, and how they compare on real stages."""

import pytest
from msgspec.structs import replace

from solvers.check import check_plan
from solvers.ir import InvalidInput, LayerOp, Limits, RecomputeLayerProblem, Status, Window
from solvers.ir.codec import plan_file
from solvers.planner import build_solver
from solvers.recompute.layer import AdaPipe, Block, CheckmateLayer, Full, Heu, Layer, Selective, Uniform, adapipe
from solvers.recompute.layer.adapipe import units_of
from solvers.recompute.layer.selective import attention_core
from tests.solvers.recompute.layer.brute_force import mixes, random_problem
from tests.solvers.recompute.layer.real import SHAPES, costs, stage

LIMITS = Limits()


def op(name: str, time_us: int, size: int, *inputs: int, comm: bool = False, needed: bool = True) -> LayerOp:
    return LayerOp(name=name, time_us=time_us, output_bytes=size, inputs=inputs, comm=comm, needed=needed)


ATTENTION = RecomputeLayerProblem(
    name="an attention block",
    layers=3,
    inflight_microbatches=2,
    last_stage=False,
    budget_bytes=0,
    static_bytes=0,
    layer_input_bytes=4,
    windows=(Window(name="all-reduce", phase="backward", time_us=9),),
    ops=(
        op("qkv", 9, 6),
        op("scores", 4, 20, 0, needed=False),
        op("softmax", 3, 20, 1),
        op("attention mask", 1, 5),
        op("attention dropout", 2, 20, 2, 3),
        op("context", 5, 3, 0, 4),
        op("projection", 6, 4, 5, needed=False),
        op("all-reduce", 9, 4, 6, comm=True, needed=False),
        op("add", 1, 4, 7),
        op("output", 1, 4, 8, needed=False),
    ),
)
"""Needed are 6 + 20 + 5 + 20 + 3 + 4 = 58 bytes; inputs take 2·3·4 = 24."""


def test_full_recomputes_what_the_backward_pass_depends_on() -> None:
    """All but the output: 40 us a layer; 86 bytes at once. `whole` runs the output too."""
    solution = Full().solve(replace(ATTENTION, budget_bytes=24 + 86), LIMITS)
    assert (solution.status, solution.objective, solution.bound) == (Status.FEASIBLE, 120, None)
    assert Full(whole=True).solve(replace(ATTENTION, budget_bytes=24 + 90), LIMITS).objective == 123
    short = Full().solve(replace(ATTENTION, budget_bytes=24 + 85), LIMITS)
    assert (short.status, short.reason) == (
        Status.UNKNOWN,
        "full needs 110 bytes, but the budget is 109: raise it or choose heu",
    )


def test_selective_recomputes_the_attention_core() -> None:
    """Scores, softmax, mask, dropout, context: 15 us; qkv and add stay: 24 + 2·3·10 + 68 at once."""
    assert attention_core(ATTENTION.ops) == {1, 2, 3, 4, 5}
    solution = Selective().solve(replace(ATTENTION, budget_bytes=24 + 60 + 68), LIMITS)
    assert (solution.objective, solution.bound) == (45, None)
    assert solution.plan is not None
    assert solution.plan.groups[0].stored == (0, 8)


def test_selective_tells_the_fused_attention_of_a_measured_step() -> None:
    names = ["aten::linear", "aten::scaled_dot_product_attention", "aten::linear"]
    ops = tuple(op(name, 4, 20, *range(max(i - 1, 0), i), needed=True) for i, name in enumerate(names))
    assert attention_core(ops) == {1}


def test_selective_says_where_it_cannot_tell_the_core() -> None:
    nameless = replace(ATTENTION, ops=tuple(replace(op, name="op") for op in ATTENTION.ops))
    solution = Selective().solve(nameless, LIMITS)
    assert solution.status is Status.UNKNOWN
    assert solution.reason is not None
    assert "no op is named scores or attention scores or qk before one named context" in solution.reason


@pytest.mark.parametrize("shape", SHAPES, ids=[shape for shape, *_ in SHAPES])
@pytest.mark.parametrize("group_small", [True, False])
def test_selective_tells_the_core_of_every_shape(shape: tuple[str, int, int, str], group_small: bool) -> None:
    """What is kept is the layer's input and everything but the s × s matrices (one kernel with flash attention)."""
    layer = costs(*shape, group_small=group_small)
    problem = stage(layer, 2, 4, 1.0)
    core = {problem.ops[i].name for i in attention_core(problem.ops)}
    assert core
    assert core <= {
        "scores",
        "softmax",
        "attention mask",
        "attention dropout",
        "context",
        "context matmul",
        "flash attention",
    }
    assert core == {"flash attention"} or {"scores", "softmax"} < core


def test_uniform_states_chunks_of_one_layer_only() -> None:
    problem = replace(ATTENTION, budget_bytes=24 + 86)
    assert Uniform().solve(problem, LIMITS).plan == Full().solve(problem, LIMITS).plan
    larger = Uniform(chunk=2).solve(problem, LIMITS)
    assert larger.status is Status.UNKNOWN
    assert larger.reason == (
        "chunks of 2 layers would need 192 of 110 bytes, but this kind keeps every layer's input: leave chunk at 1"
    )
    with pytest.raises(InvalidInput, match="chunk is 0, below 1"):
        Uniform(chunk=0)


@pytest.mark.parametrize(("room", "layers"), [(86, 3), (86 + 115, 3), (86 + 116, 2), (86 + 232, 1), (348, 0)])
def test_block_recomputes_as_few_layers_as_fit(room: int, layers: int) -> None:
    """A layer that keeps everything takes 2·58 = 116 bytes; recomputing takes 86 once."""
    solution = Block().solve(replace(ATTENTION, budget_bytes=24 + room), LIMITS)
    assert solution.objective == 40 * layers
    assert (solution.status is Status.OPTIMAL) == (layers == 0)


def test_adapipe_joins_what_is_recomputed_together() -> None:
    """The projection and its all-reduce are computed again for the sum's sake, the scores for the softmax."""
    units = units_of(Layer.of(ATTENTION))
    assert [(unit.needed, unit.time_us, unit.stored_bytes, unit.again_bytes) for unit in units] == [
        ((0,), 9, 6, 6),
        ((2,), 7, 20, 40),
        ((3,), 1, 5, 5),
        ((4,), 2, 20, 20),
        ((5,), 5, 3, 3),
        ((8,), 16, 4, 12),
    ]


def test_adapipe_stores_what_saves_most_time_for_its_bytes() -> None:
    """Room for add in all layers and context in two: 86 − 12 at once, 2·3·4 and 2·2·3 bytes: 3·(40 − 16) − 2·5."""
    solution = AdaPipe().solve(replace(ATTENTION, budget_bytes=24 + 74 + 24 + 12), LIMITS)
    assert solution.objective == 62
    assert solution.plan is not None
    assert [(group.layers, group.stored) for group in solution.plan.groups] == [(2, (5, 8)), (1, (8,))]


def test_adapipe_in_small_parts_is_adapipe(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = costs(*SHAPES[0])
    for position in (0.05, 0.3):
        problem = stage(layer, 8, 4, position)
        whole = AdaPipe().solve(problem, LIMITS)
        with monkeypatch.context() as patch:
            patch.setattr(adapipe, "AT_ONCE", 7)
            assert AdaPipe().solve(problem, LIMITS).objective == whole.objective


def test_adapipe_ends_at_its_limit_and_at_its_watch_s_word_with_every_unit_again() -> None:
    problem = replace(ATTENTION, layers=10_000, budget_bytes=10**6)
    every = AdaPipe().solve(problem, Limits(time_s=0.0))
    assert every.plan is not None
    assert [group.stored for group in every.plan.groups] == [()]
    assert every.reason == "the time limit of 0.0 s ended the search before its end: this is every unit again"
    assert not check_plan(problem, plan_file(every, problem.KIND, None)).violations
    seen: list[float] = []

    def watch(incumbent: float | None, bound: float | None, elapsed_s: float) -> bool:
        seen.append(elapsed_s)
        return len(seen) == 3

    told = AdaPipe().solve(problem, LIMITS, watch)
    assert told.reason is not None
    assert told.reason.startswith("its watch ended the search")
    assert len(seen) == 3
    short = AdaPipe().solve(replace(problem, budget_bytes=30), Limits(time_s=0.0))
    assert short.status is Status.UNKNOWN


def test_units_that_read_the_same_unneeded_op_are_one() -> None:
    ops = (op("a", 1, 1, needed=False), op("b", 2, 2, 0), op("c", 3, 3, 0), op("d", 4, 4))
    assert [unit.needed for unit in units_of(Layer(ops, ()))] == [(1, 2), (3,)]


@pytest.mark.parametrize("seed", range(60))
def test_checkmate_is_the_optimum_without_windows(seed: int) -> None:
    """Its infeasibility is everybody's: no policy needs less memory than one that recomputes on the critical path."""
    problem = random_problem(seed)
    solution = CheckmateLayer().solve(problem, LIMITS)
    assert solution.objective == mixes(replace(problem, windows=()))[0]
    if solution.plan is None:
        assert (solution.status, solution.least_budget_bytes) == (Status.INFEASIBLE, mixes(problem)[1])
    elif solution.objective:
        assert (solution.status, solution.bound) == (Status.FEASIBLE, None)


@pytest.mark.parametrize("shape", SHAPES, ids=[shape for shape, *_ in SHAPES])
def test_baselines_stand_in_their_order_on_real_stages(shape: tuple[str, int, int, str]) -> None:
    """heu ≤ checkmate-layer ≤ adapipe ≤ block ≤ full, as each decides among more plans than the next."""
    layer = costs(*shape)
    for position in (0.05, 0.2, 0.5):
        problem = stage(layer, 8, 4, position)
        objectives = []
        for solver in (Heu(groups=None), CheckmateLayer(), AdaPipe(), Block(), Full()):
            solution = solver.solve(problem, LIMITS)
            assert not check_plan(problem, plan_file(solution, problem.KIND, None)).violations
            objectives.append(solution.objective)
        assert None not in objectives
        assert objectives == sorted(objectives)  # type: ignore[type-var]


def test_every_name_builds_its_solver() -> None:
    for name in ("heu", "full", "selective", "uniform", "block", "checkmate-layer", "adapipe"):
        assert name == type(build_solver(name, {})).NAME  # type: ignore[attr-defined]
