"""The recompute-graph judge: a story by hand, each rule broken once, and the optimum found by walking memory states."""

from collections.abc import Iterator
from itertools import chain, combinations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from solvers.check.recompute_graph.judge import base_us, judge_recompute_graph
from solvers.ir import RecomputeGraphPlan, RecomputeGraphProblem, RecomputeOp
from tests.strategies import recompute_graph_problems

Pairs = list[tuple[int, int]]


def op(time_us: int, output_bytes: int, *inputs: int, comm: bool = False) -> RecomputeOp:
    return RecomputeOp(name="op", time_us=time_us, output_bytes=output_bytes, inputs=inputs, comm=comm)


STORY = RecomputeGraphProblem(
    name="forward 0, 1; backward 2 reads 1, 3 reads 0 and 2",
    budget_bytes=13,
    static_bytes=5,
    ops=(op(4, 4), op(3, 3, 0), op(5, 1, 1), op(6, 2, 0, 2)),
)


def plan(*, again: Pairs = [], keep: Pairs = [], stages: int = 4) -> RecomputeGraphPlan:  # noqa: B006
    """The diagonal, and what is computed again or kept."""
    return RecomputeGraphPlan(compute=tuple([(t, t) for t in range(stages)] + again), keep=tuple(keep))


KEEP_ALL: Pairs = [(1, 0), (2, 0), (2, 1), (3, 0), (3, 2)]
DROP_0: Pairs = [(1, 0), (2, 1), (3, 2)]


def test_keeping_everything_takes_the_base_and_the_most_memory() -> None:
    """Stage 2 has most: 5 static + op 0 (4) + op 1 (3) + op 2 (1) = 13, before op 1 is freed. Time 4 + 3 + 5 + 6."""
    verdict = judge_recompute_graph(STORY, plan(keep=KEEP_ALL))
    assert (verdict.violations, verdict.objective_us) == ((), 18)
    assert base_us(STORY) == 18
    tight = judge_recompute_graph(replace(STORY, budget_bytes=11), plan(keep=KEEP_ALL))
    assert tight.violations == (
        "stage 1, op 1 has 12 bytes in use, budget 11",  # 5 + 4 + 3
        "stage 2, op 2 has 13 bytes in use, budget 11",
        "stage 3, op 3 has 12 bytes in use, budget 11",  # 5 + 4 + 1 + 2
    )


def test_recomputing_costs_time_and_saves_memory() -> None:
    """Op 0 is dropped after op 1 read it, and computed again in stage 3: 18 + 4. Peak 12 in stage 1 and in stage 3."""
    recomputed = plan(again=[(3, 0)], keep=DROP_0)
    assert judge_recompute_graph(replace(STORY, budget_bytes=12), recomputed).objective_us == 22
    assert judge_recompute_graph(replace(STORY, budget_bytes=11), recomputed).violations == (
        "stage 1, op 1 has 12 bytes in use, budget 11",
        "stage 3, op 3 has 12 bytes in use, budget 11",
    )


def test_what_is_not_needed_any_more_is_freed_within_its_stage() -> None:
    """Stage 3 keeps 0 (4 bytes) and 2 (1), runs 1 (3) again: 8; then 0 has had its last use, and 3 (4 bytes) fits in 8.

    Stage 2 has 4 + 3 + 1 = 8 too. And what is computed for nobody is gone at once: op 0 in stage 2 of the story.
    """
    chain = RecomputeGraphProblem(
        name="chain", budget_bytes=8, static_bytes=0, ops=(op(4, 4), op(3, 3, 0), op(5, 1, 1), op(6, 4, 1, 2))
    )
    again = plan(again=[(3, 1)], keep=[(1, 0), (2, 0), (2, 1), (3, 0), (3, 2)])
    assert judge_recompute_graph(chain, again).objective_us == 21
    assert judge_recompute_graph(replace(chain, budget_bytes=7), again).violations == (
        "stage 2, op 2 has 8 bytes in use, budget 7",
        "stage 3, op 1 has 8 bytes in use, budget 7",
        "stage 3, op 3 has 8 bytes in use, budget 7",
    )
    for_nobody = plan(again=[(2, 0), (3, 0)], keep=DROP_0)
    assert judge_recompute_graph(replace(STORY, budget_bytes=12), for_nobody).objective_us == 26


COMM = replace(STORY, ops=(*STORY.ops[:2], op(4, 1, 1, comm=True), op(6, 2, 0, 2)))
"""Op 2 is a communication of 4 us, so that op 0 (4 us) can be recomputed behind it."""


def test_recomputation_hides_behind_communication() -> None:
    """Free in time; in memory, op 0's output stands beside op 1, and the communication's buffer is there already.

    Stage 2: 5 + op 1 (3) + op 0 (4) + the buffer (1) = 13.
    """
    hidden = plan(again=[(2, 0)], keep=[(1, 0), (2, 1), (3, 0), (3, 2)])
    assert judge_recompute_graph(COMM, hidden).objective_us == 17
    assert judge_recompute_graph(replace(COMM, budget_bytes=12), hidden).violations == (
        "stage 2, op 0 has 13 bytes in use, budget 12",
        "stage 2, op 2 has 13 bytes in use, budget 12",
    )


@pytest.mark.parametrize(
    ("problem", "broken", "words"),
    [
        (STORY, plan(keep=KEEP_ALL, stages=3), "stage 3 does not compute op 3: compute must list [3, 3]"),
        (STORY, plan(again=[(0, 1)], keep=KEEP_ALL), "stage 0 computes op 1, whose first stage is 1"),
        (STORY, plan(keep=[*KEEP_ALL, (1, 1)]), "stage 1 keeps op 1, which no stage before 1 computes"),
        (STORY, plan(again=[(3, 0)], keep=KEEP_ALL), "stage 3 both keeps and recomputes op 0"),
        (STORY, plan(keep=DROP_0), "stage 3 computes op 3, whose input 0 is not kept or recomputed in that stage"),
        (STORY, plan(keep=[*DROP_0, (3, 0)]), "stage 3 keeps op 0, which stage 2 neither kept nor computed"),
        (STORY, plan(again=[(3, 0)], keep=[*DROP_0, (2, 1)]), "keep[3] lists [2, 1] a second time"),
        (STORY, plan(again=[(4, 0)]), "compute[4] is [4, 0], but stages and ops are 0…3"),
        (
            COMM,
            plan(again=[(2, 0), (2, 1)], keep=[(1, 0), (3, 0), (3, 2)]),
            "stage 2 computes op 2, whose input 1 is not kept at the start of its communication",
        ),
        (
            COMM,
            plan(again=[(2, 0), (2, 1)], keep=[(1, 0), (3, 0), (3, 2)]),
            "stage 2 recomputes for 7 us during a communication of 4 us",
        ),
        (
            replace(COMM, ops=(op(4, 4, comm=True), *COMM.ops[1:])),
            plan(again=[(2, 0)], keep=[(1, 0), (2, 1), (3, 0), (3, 2)]),
            "stage 2 recomputes op 0, a communication, during a communication",
        ),
    ],
)
def test_each_rule_broken_once_is_named(problem: RecomputeGraphProblem, broken: RecomputeGraphPlan, words: str) -> None:
    verdict = judge_recompute_graph(problem, broken)
    assert words in verdict.violations
    assert verdict.objective_us is None


def test_a_communication_is_recomputed_outside_of_communications() -> None:
    """Ops 0 (comm, 2 us) and 1; stage 2 needs op 0 again: 2 + 1 + 1, and 2 once more. Only op 2 sees it: peak 3."""
    problem = RecomputeGraphProblem(
        name="c", budget_bytes=3, static_bytes=0, ops=(op(2, 2, comm=True), op(1, 1), op(1, 1, 0))
    )
    again = plan(again=[(2, 0)], stages=3)
    assert judge_recompute_graph(problem, again).objective_us == 6


def every_plan(count: int) -> Iterator[RecomputeGraphPlan]:
    """Each pair below the diagonal recomputed, kept, or neither."""
    pairs = [(t, i) for t in range(count) for i in range(t)]
    for choice in product("rkn", repeat=len(pairs)):
        chosen = dict(zip(pairs, choice, strict=True))
        again = [pair for pair in pairs if chosen[pair] == "r"]
        yield plan(again=again, keep=[pair for pair in pairs if chosen[pair] == "k"], stages=count)


def subsets(items: frozenset[int]) -> Iterator[frozenset[int]]:
    for chosen in chain.from_iterable(combinations(sorted(items), size) for size in range(len(items) + 1)):
        yield frozenset(chosen)


def walk(problem: RecomputeGraphProblem, t: int, start: frozenset[int]) -> Iterator[tuple[int, frozenset[int]]]:
    """Stage t from what is resident at its start: (time, resident at its end) for every choice of runs and frees."""
    ops, comm = problem.ops, problem.ops[t].comm
    states = {(0, start)}
    for i in range(t + 1):
        after = set()
        for spent, resident in states:
            if i < t:
                after.add((spent, resident))
            present = start if comm and i == t else resident
            forbidden = i in resident or (i < t and comm and ops[i].comm)
            if forbidden or not set(ops[i].inputs) <= present & resident:
                continue
            full = resident | {i}
            window = ops[t].output_bytes if comm and i < t else 0
            needed = problem.static_bytes + sum(ops[d].output_bytes for d in full) + window
            longer = spent + (ops[i].time_us if i < t else 0)
            if needed <= problem.budget_bytes and (not comm or longer <= ops[t].time_us):
                after |= {(longer, left) for left in subsets(full)}
        states = after
    return iter({(0 if comm else spent, resident) for spent, resident in states})


def optimum_us(problem: RecomputeGraphProblem) -> float:
    """The least time over all walks through sets of resident outputs: a model of its own, without R, S, U and F."""
    best: dict[frozenset[int], float] = {frozenset(): base_us(problem)}
    for t in range(len(problem.ops)):
        after: dict[frozenset[int], float] = {}
        for resident, spent in best.items():
            for start in subsets(resident):
                for more, end in walk(problem, t, start):
                    after[end] = min(after.get(end, float("inf")), spent + more)
        best = after
    return min(best.values(), default=float("inf"))


@st.composite
def tight_problems(draw: st.DrawFn) -> RecomputeGraphProblem:
    """Forward 0, 1; then 2 reads 1 and 3 reads 0, like a backward pass: at a tight budget op 0 must be run again."""
    inputs = [(), (0,), draw(st.sampled_from([(1,), (0, 1)])), draw(st.sampled_from([(0,), (0, 2), (0, 1), (1, 2)]))]
    sizes = [draw(st.integers(1, 5)), draw(st.integers(1, 3)), draw(st.integers(2, 5)), draw(st.integers(0, 4))]
    ops = tuple(op(draw(st.integers(1, 4)), size, *inputs[t], comm=draw(_rarely)) for t, size in enumerate(sizes))
    needed = sizes[1] + sizes[2]
    return RecomputeGraphProblem(
        name="tight", budget_bytes=needed + draw(st.integers(0, sizes[0])), static_bytes=0, ops=ops
    )


_rarely = st.sampled_from([False, False, True])


@settings(max_examples=60)
@given(recompute_graph_problems(max_ops=4) | tight_problems())
def test_the_best_clean_plan_is_the_best_walk_through_memory_states(problem: RecomputeGraphProblem) -> None:
    verdicts = (judge_recompute_graph(problem, candidate) for candidate in every_plan(len(problem.ops)))
    clean = [verdict.objective_us for verdict in verdicts if verdict.objective_us is not None]
    assert min(clean, default=float("inf")) == optimum_us(problem)


def test_722_ops_are_judged_in_seconds() -> None:
    count = 722
    ops = tuple(
        op(5, 10, *sorted({max(0, t - 1), max(0, count - 1 - t) if t > count // 2 else 0} - {t}), comm=t % 10 == 3)
        for t in range(count)
    )
    large = RecomputeGraphProblem(name="large", budget_bytes=10 * count, static_bytes=0, ops=ops)
    assert judge_recompute_graph(large, plan(keep=[(t, i) for t in range(count) for i in range(t)], stages=count)).clean


def test_runs_say_the_same_as_pairs() -> None:
    """Ops 0, 1, 2 are kept as KEEP_ALL keeps them; each fault of a run is told."""
    runs = ((0, 1, 3), (1, 2, 2), (2, 3, 3))
    assert judge_recompute_graph(STORY, replace(plan(), keep_runs=runs)) == judge_recompute_graph(
        STORY, plan(keep=KEEP_ALL)
    )
    both = replace(plan(keep=[(1, 0)]), keep_runs=runs)
    assert judge_recompute_graph(STORY, both).violations == ("keep_runs[0] keeps op 0 in stage 1 a second time",)
    for run in ((0, 1, 4), (4, 1, 1), (0, 3, 2)):
        assert "stages and ops are 0…3" in judge_recompute_graph(STORY, replace(plan(), keep_runs=(run,))).violations[0]
