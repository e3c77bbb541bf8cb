"""Pipelines that go on with what their nodes hold."""

from collections.abc import Iterator
from itertools import combinations

import msgspec

from solvers.check.replan.judge import judge_replan
from solvers.ir import CurrentPipeline, CurrentState, Limits, ReplanProblem
from solvers.replan import ExactReplan
from solvers.replan.estimate.objective import step_us
from solvers.replan.exact.kept import kept_pipelines
from solvers.replan.exact.timetable import Timetable
from solvers.replan.instances import Model
from solvers.replan.transfer.restore import restore
from tests.solvers.replan.brute_force import fits, splits, unlike_problem


def _kept(problem: ReplanProblem) -> tuple[tuple[tuple[int, ...], int], ...]:
    return kept_pipelines(problem, Timetable(problem))


def test_nodes_of_alike_stages_stand_in_for_each_other() -> None:
    """Two pipelines lose different stages: their survivors make one, so that two of three go on."""
    problem = Model(layers=8).after("kept", 2, 3, 12, (0, 3))
    assert _kept(problem) == (((4, 4), 6), ((4, 4), 6))
    assert restore(problem, _kept(problem)).transfer_us == 0


def test_pipelines_that_differ_share_by_their_speed() -> None:
    current = CurrentState(
        pipelines=(
            CurrentPipeline(layers=(6,), nodes=(0,), microbatches=4),
            CurrentPipeline(layers=(2, 2, 2), nodes=(1, 2, 3), microbatches=8),
            CurrentPipeline(layers=(3, 3), nodes=(4, 5), microbatches=6),
        ),
        failed=(5,),
    )
    problem = msgspec.structs.replace(
        Model(layers=6).after("kept", 2, 3, 18, (5,)), data_parallel=None, current=current, memory_bytes=10**13
    )
    shared = dict(_kept(problem))
    assert set(shared) == {(6,), (2, 2, 2)} and sum(shared.values()) == 18
    assert shared[2, 2, 2] > 2 * shared[6,]


def test_nothing_goes_on_without_a_stage_or_without_memory() -> None:
    assert _kept(Model(layers=8).problem("new", 2, 2, 8)) == ()
    assert _kept(Model(layers=8).after("dead", 2, 2, 8, (1, 3))) == ()
    assert _kept(msgspec.structs.replace(Model(layers=8).after("scarce", 2, 2, 8, (3,)), memory_bytes=10**9)) == ()


def test_where_not_one_layer_may_move_what_is_kept_is_the_plan() -> None:
    problem = msgspec.structs.replace(
        Model(layers=25).after("slow", 8, 3, 48, (20,)),
        bytes_per_s=10**6,
        restart_us=8 * 10**6,
        expected_interval_us=3_600_000_000,
        max_depth=10,
        last_extra_us=(0, 0),
    )
    problem = msgspec.structs.replace(problem, nodes=26)
    answer = ExactReplan().solve(problem, Limits(time_s=20))
    assert answer.plan is not None and not judge_replan(problem, answer.plan).violations
    assert not answer.plan.transfers


def test_no_whole_pipelines_have_a_shorter_step() -> None:
    """Each set of them, with each way to share the microbatches."""
    fewer = alone = 0
    for seed in range(400):
        problem = msgspec.structs.replace(
            unlike_problem(seed), sync_us=100 * (seed % 2), layer_sync_us=30 * (seed // 2 % 2), max_depth=3
        )
        whole, kept = _whole(problem), _kept(problem)
        tried = [
            step_us(problem, tuple(zip(some, counts, strict=True)))
            for number in range(1, len(whole) + 1)
            for some in combinations(whole, number)
            for counts in _shares(problem.microbatches, number)
            if all(fits(problem, layers, count) for layers, count in zip(some, counts, strict=True))
        ]
        if not tried:
            continue
        assert step_us(problem, kept) <= min(tried)
        assert sum(count for _, count in kept) == problem.microbatches
        assert all(fits(problem, *split) for split in kept) and restore(problem, kept).transfer_us == 0
        fewer += 1 < len(kept) < len(whole)
        alone += len(kept) == 1 < len(whole)
    assert fewer >= 2 and alone >= 5


def _whole(problem: ReplanProblem) -> list[tuple[int, ...]]:
    assert problem.current is not None
    failed = set(problem.current.failed)
    pipelines = [pipeline for pipeline in problem.current.pipelines if failed.isdisjoint(pipeline.nodes)]
    return [pipeline.layers for pipeline in pipelines if len(pipeline.layers) <= problem.max_depth]


def _shares(microbatches: int, pipelines: int) -> Iterator[tuple[int, ...]]:
    return splits(microbatches, pipelines) if pipelines <= microbatches else iter(())


def test_one_pipeline_goes_on_alone_where_agreeing_takes_longer() -> None:
    problem = Model(layers=8).after("agree", 2, 3, 12, (0, 3))
    problem = msgspec.structs.replace(
        problem, sync_us=10**9, restart_us=0, bytes_per_s=1, max_depth=2, memory_bytes=10**13
    )
    assert _kept(problem) == (((4, 4), 12),)
    answer = ExactReplan().solve(problem, Limits(time_s=20))
    assert answer.plan is not None and [pipeline.layers for pipeline in answer.plan.pipelines] == [(4, 4)]


def test_the_fullest_pipelines_stand_still_where_their_synchronization_takes_longest() -> None:
    ran = [((7, 1), 4), ((2, 2, 2, 2), 4), ((2, 2, 2, 2), 4)]
    pipelines, first = list[CurrentPipeline](), 0
    for layers, count in ran:
        nodes = tuple(range(first, first + len(layers)))
        pipelines.append(CurrentPipeline(layers=layers, nodes=nodes, microbatches=count))
        first += len(layers)
    problem = msgspec.structs.replace(
        Model(layers=8).after("full", 2, 3, 12, (5,)),
        nodes=first, data_parallel=None, current=CurrentState(pipelines=tuple(pipelines), failed=()),
        layer_sync_us=10**7, max_depth=4, memory_bytes=10**13,
    )  # fmt: skip
    assert {layers for layers, _ in _kept(problem)} == {(2, 2, 2, 2)}
