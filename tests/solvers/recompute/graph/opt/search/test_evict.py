"""One pass over the stages: within the budget or no plan, and nothing recomputed behind communication."""

import random

import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from solvers.check.recompute_graph.judge import judge_recompute_graph
from solvers.ir import RecomputeGraphProblem, RecomputeOp
from solvers.recompute.graph.instances import mobilenet, random_layered, unet
from solvers.recompute.graph.opt.search.evict import Eviction, _Pass, inputs_ahead, may_leave, run_through
from solvers.recompute.graph.replay import instance, plan_from_recomputations, replay
from tests.strategies import recompute_graph_problems

EVICTIONS = [Eviction(1.0, 1.0), Eviction(1.0, 0.5, spread=0.3), Eviction(0.5, 1.0, deep=400)]


def chain(budget_bytes: int) -> RecomputeGraphProblem:
    """Ops 0 … 3 of 4 bytes, each reading the one before; op 4 reads ops 3 and 0."""
    inputs = ((), (0,), (1,), (2,), (0, 3))
    ops = tuple(
        RecomputeOp(name=str(t), time_us=1 + t, output_bytes=4, inputs=read, comm=False)
        for t, read in enumerate(inputs)
    )
    return RecomputeGraphProblem(name="chain", budget_bytes=budget_bytes, static_bytes=0, ops=ops)


def test_inputs_of_communications_are_known_ahead() -> None:
    """Ops 2 and 3 communicate one after the other: when op 1 ends, both of their inputs must be there."""
    ops = tuple(replace(op, comm=op.name in "23") for op in chain(0).ops)
    assert inputs_ahead(instance(replace(chain(0), ops=ops))) == [set(), {1}, {2}, set(), set()]


def test_what_does_not_fit_goes_and_comes_back() -> None:
    """12 bytes hold op 0 until the end; with 11 op 4's two inputs and its output do not fit, whatever goes."""
    kept = run_through(instance(chain(12)), EVICTIONS[0], random.Random(0), lambda: False)
    assert kept == [set()] * 5
    ops = (*chain(0).ops[:2], replace(chain(0).ops[2], output_bytes=8), *chain(0).ops[3:])
    wide = replace(chain(14), ops=ops)
    assert replay(instance(wide), [()] * 5).violation is not None
    assert run_through(instance(wide), EVICTIONS[0], random.Random(0), lambda: False) == [*[set()] * 4, {0}]
    assert run_through(instance(chain(11)), EVICTIONS[0], random.Random(0), lambda: False) is None


@pytest.mark.parametrize("eviction", EVICTIONS)
@pytest.mark.parametrize(
    "problem", [unet(), mobilenet(position=0.3), random_layered(comm=0.2, position=0.7)], ids=lambda p: p.name
)
def test_training_graphs_pass_the_judge(problem: RecomputeGraphProblem, eviction: Eviction) -> None:
    found = run_through(instance(problem), eviction, random.Random(1), lambda: False)
    assert found is not None
    assert any(found)
    assert judge_recompute_graph(problem, plan_from_recomputations(problem, found)).clean


@settings(max_examples=200, deadline=None)
@given(recompute_graph_problems(max_ops=7))
def test_small_graphs_pass_the_judge_or_get_none(problem: RecomputeGraphProblem) -> None:
    found = run_through(instance(problem), EVICTIONS[1], random.Random(2), lambda: False)
    if found is None:
        assert replay(instance(problem), [()] * len(problem.ops)).violation is not None
    else:
        assert not any(run for run, op in zip(found, problem.ops, strict=True) if op.comm)
        assert judge_recompute_graph(problem, plan_from_recomputations(problem, found)).clean


def test_it_stops_when_told() -> None:
    assert run_through(instance(unet()), EVICTIONS[0], random.Random(0), lambda: True) is None


def squeezed(times: tuple[int, int], sizes: tuple[int, int]) -> RecomputeGraphProblem:
    """Ops 0 and 1 wait for ops 3 and 4, which come after op 2; room is for op 2's bytes and one of them."""
    shapes = ((times[0], sizes[0], ()), (times[1], sizes[1], ()), (1, 4, ()), (1, 0, (0,)), (100, 0, ()), (1, 0, (1,)))
    ops = tuple(
        RecomputeOp(name=str(t), time_us=us, output_bytes=size, inputs=read, comm=False)
        for t, (us, size, read) in enumerate(shapes)
    )
    return RecomputeGraphProblem(name="squeezed", budget_bytes=4 + max(sizes), static_bytes=0, ops=ops)


@pytest.mark.parametrize(
    ("eviction", "times", "sizes", "gone"),
    [
        (Eviction(1.0, 0.0), (5, 9), (4, 4), 0),  # the cheaper one to have again
        (Eviction(1.0, 0.0), (9, 5), (4, 4), 1),
        (Eviction(1.0, 0.0), (5, 9), (4, 12), 1),  # by bytes: 9/12 is less than 5/4
        (Eviction(0.0, 1.0), (5, 9), (4, 4), 1),  # the one that is needed later
        (Eviction(1.0, 1.0), (5, 600), (4, 4), 0),  # 5/(4·1) against 600/(4·102): op 0 is needed in 1 us, op 1 in 102
        (Eviction(1.0, 1.0), (9, 9), (4, 4), 1),
        (Eviction(0.0, 0.0), (5, 9), (4, 12), 1),  # bytes alone
    ],
)
def test_the_least_score_goes(eviction: Eviction, times: tuple[int, int], sizes: tuple[int, int], gone: int) -> None:
    found = run_through(instance(squeezed(times, sizes)), eviction, random.Random(0), lambda: False)
    assert found == [set()] * 3 + ([{0}, set(), set()] if gone == 0 else [set(), set(), {1}])


def test_what_is_missing_for_it_counts_once_and_only_so_deep() -> None:
    """Op 4 reads ops 1 and 2, which both read op 0: 8 + 2 + 4 + 1 us; with op 1 there, 8 + 4 + 1 of the others."""
    inputs, times = ((), (0,), (0,), (), (1, 2), (4,)), (1, 2, 4, 1, 8, 1)
    ops = tuple(
        RecomputeOp(name=str(t), time_us=us, output_bytes=1, inputs=read, comm=False)
        for t, (us, read) in enumerate(zip(times, inputs, strict=True))
    )
    given = instance(RecomputeGraphProblem(name="diamond", budget_bytes=9, static_bytes=0, ops=ops))
    one = _Pass(given, Eviction(1.0, 1.0), random.Random(0))
    assert one._cost(4) == 15
    one.resident = {1}
    assert one._cost(4) == 13
    one.resident = {1, 2}
    assert one._cost(4) == 8
    shallow = _Pass(given, Eviction(1.0, 1.0, deep=3), random.Random(0))
    assert shallow._cost(4) == 14  # itself and the two it reads are three


def test_what_must_be_computed_for_a_reader_is_needed_when_that_reader_is() -> None:
    """Op 0 is read by op 1 only, but op 1 is gone and read in stage 4: so is op 0 then, at 1 + 2 + 3 + 4 us."""
    given = instance(chain(100))
    one = _Pass(given, Eviction(1.0, 1.0), random.Random(0))
    one.resident = {0, 1, 2}
    assert (one._needed(2, 0), one._needed(1, 1)) == (4, 2)
    assert one._needed(3, 1) == 5  # nobody any more
    one.resident = {0}
    assert one._needed(2, 1) == 3  # op 2, which is gone, is read by op 3 then


def test_chains_that_are_gone_may_be_long() -> None:
    """3 ops after op 0 are gone, and the last of them is read in the last stage: so is op 0, if it is looked so far."""
    inputs = ((), (0,), (1,), (2,), (), (3,))
    ops = tuple(
        RecomputeOp(name=str(t), time_us=1, output_bytes=4, inputs=read, comm=False) for t, read in enumerate(inputs)
    )
    given = instance(RecomputeGraphProblem(name="chain", budget_bytes=100, static_bytes=0, ops=ops))
    for deep, needed in ((64, 5), (8, 6)):
        one = _Pass(given, Eviction(1.0, 1.0, deep), random.Random(0))
        one.resident = {0}
        assert one._needed(4, 0) == needed


def test_who_goes_has_the_lowest_score_of_all_that_may(monkeypatch: pytest.MonkeyPatch) -> None:
    """The heap's scores are old, its choices are nearly always as if all scores were made anew each time."""
    lowest, chosen = _Pass._lowest, [0, 0]

    def checked(one: _Pass, t: int, pinned: set[int], aside: list[tuple[float, int]]) -> int | None:
        size = one.given.size
        loose = [j for j in one.resident if size[j] and j not in pinned and may_leave(one.given, t, j)]
        found = lowest(one, t, pinned, aside)
        assert (found is None) == (not loose)
        if found is not None:
            chosen[one._score(t, found) <= min(one._score(t, j) for j in loose)] += 1
        return found

    monkeypatch.setattr(_Pass, "_lowest", checked)
    for seed in range(10):
        measured = instance(random_layered(80, seed=seed, comm=0.0, position=0.5))
        run_through(measured, Eviction(1.0, 1.0, 1000), random.Random(0), lambda: False)
    others, best = chosen
    assert best > 500
    assert others < best / 20


def test_a_pass_over_a_long_step_makes_few_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some 3 an op, of 20,000 ops of a chain and its backward pass; anew for each eviction there would be 10⁸."""
    score, made = _Pass._score, [0]

    def counted(one: _Pass, t: int, j: int) -> float:
        made[0] += 1
        return score(one, t, j)

    monkeypatch.setattr(_Pass, "_score", counted)
    half = 10_000
    inputs: list[tuple[int, ...]] = [(t - 1,) if t else () for t in range(half)]
    inputs += [(half - 1,), *((half - 1 - t, half + t - 1) for t in range(1, half))]
    ops = tuple(
        RecomputeOp(name=str(t), time_us=1 + t % 7, output_bytes=1 + t % 5, inputs=read, comm=False)
        for t, read in enumerate(inputs)
    )
    measured = instance(RecomputeGraphProblem(name="long", budget_bytes=half, static_bytes=0, ops=ops))
    found = run_through(measured, Eviction(1.0, 0.5), random.Random(0), lambda: False)
    assert found is not None
    plan = replay(measured, found)
    assert plan.violation is None
    assert plan.objective_us < 1.5 * measured.base
    assert made[0] < 10 * len(ops)
