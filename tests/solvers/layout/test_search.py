"""ProTrain's search: nothing of its space is missed, memory is exact, and what is said where nothing fits."""

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings

from experiments.hardware import read_hardware
from experiments.shapes import read_shape
from solvers.check import check_plan
from solvers.check.layout.buffers import bound_to_buffers, passes_of
from solvers.check.layout.judge import device_peak, host_bytes, judge_layout
from solvers.ir import LayoutProblem, Limits, Status
from solvers.ir.codec import plan_file
from solvers.layout import layouts, search
from solvers.layout.analytic import Analytic
from solvers.layout.evaluate import evaluate, instance
from solvers.layout.layouts import all_layouts, left_out, shares, spread
from solvers.layout.least import Least
from solvers.layout.make import Rank, problem_from_shape
from solvers.layout.search import Configuration, Search, Space, least_buffers_of_first
from tests.solvers.layout.brute_force import optimum, random_problem
from tests.solvers.layout.naive_search import (
    every_configuration,
    least_device_bytes,
    plan_of,
    time_us,
    uneven_problem,
)
from tests.strategies import layout_problems

LIMITS = Limits()


@settings(max_examples=60)
@given(layout_problems(max_blocks=7, max_chunks=5))
def test_memory_of_all_layouts_is_what_the_judge_says_of_each(problem: LayoutProblem) -> None:
    table = all_layouts(problem)
    seen = 0
    for swap in range(len(problem.blocks) + 1):
        for checkpoint in range(len(problem.blocks) + 1):
            plan = plan_of(problem, (len(problem.chunks), 0, swap, checkpoint))
            if plan is None:
                continue
            kept = plan_of(problem, (len(problem.chunks), 0, 0, 0))
            assert kept is not None and table.valid[swap, checkpoint]
            device = table.peak_bytes[swap, checkpoint] - table.peak_bytes[0, 0]
            assert device == device_peak(problem, plan)[0] - device_peak(problem, kept)[0]
            assert table.swapped_bytes[swap] == host_bytes(problem, plan)
            seen += 1
    assert seen == table.valid.sum()
    for persist, buffers in enumerate(least_buffers_of_first(instance(problem))):
        assert buffers == max(map(len, bound_to_buffers(problem, passes_of(problem, tuple(range(persist))))))


def compare(problem: LayoutProblem, count: int = 3) -> bool:
    """That `count` of the best are found, and nothing only where nothing fits; whether something does."""
    every, space = every_configuration(problem), Space(instance(problem))
    found = space.best(count)
    assert bool(found) == bool(every)
    assert space.least_bytes == least_device_bytes(problem)
    assert (space.least_bytes <= problem.device_bytes) == bool(every)
    for one in found:
        numbers = (one.persist, one.buffers, one.swap, one.checkpoint)
        assert numbers in every and one.plan(problem) == plan_of(problem, numbers)
        assert one.analytic_us == time_us(problem, numbers)
    if found:
        all_of_them = [Configuration(*numbers, time_us(problem, numbers)) for numbers in every]
        assert found[0].analytic_us == min(one.analytic_us for one in all_of_them)
        assert _best_by_persist(found)[:count] == _best_by_persist(all_of_them)[:count]
    return bool(found)


def _best_by_persist(found: list[Configuration]) -> list[int]:
    """The least time with each count of persistent chunks, in order."""
    return sorted(min(one.analytic_us for one in found if one.persist == each) for each in {o.persist for o in found})


def test_the_best_of_the_space_is_found_by_analytic_time() -> None:
    """Every configuration, one by one, with the judge's word on memory: uneven blocks, late swaps, tight memory."""
    fitting = [compare(uneven_problem(seed)) for seed in range(90)]
    assert 0.4 < sum(fitting) / len(fitting) < 0.95


@settings(max_examples=60)
@given(layout_problems(max_blocks=5, max_chunks=4))
def test_nothing_of_the_space_is_missed(problem: LayoutProblem) -> None:
    compare(problem)


def test_the_answer_is_the_best_on_the_lanes_of_what_was_kept() -> None:
    for seed in range(40):
        problem = random_problem(seed)
        given = instance(problem)
        kept = Space(given).best(4)
        solution = Search(keep=4).solve(problem, LIMITS)
        if kept:
            assert solution.objective == min(evaluate(given, one.plan(problem)).end_us for one in kept)
            assert solution.bound is not None and solution.bound <= (optimum(problem) or 0)


def test_the_search_stops_when_it_is_told_to() -> None:
    problem = random_problem(0)
    seen: list[float | None] = []

    def watch(incumbent: float | None, bound: float | None, elapsed_s: float) -> bool:
        seen.append(incumbent)
        return True

    solution = Search().solve(problem, LIMITS, watch)
    assert seen == [solution.objective]
    assert Search().solve(problem, Limits(time_s=0)).status is not Status.UNKNOWN


def test_too_little_memory_is_told_with_the_least() -> None:
    problem = msgspec.structs.replace(random_problem(2), device_bytes=5)
    solution = Search().solve(problem, LIMITS)
    assert solution.status is Status.INFEASIBLE
    assert solution.reason == (
        "the device has 5 bytes, but exactly 17 bytes are needed; the host has 17 bytes, and needs at least 2: "
        "give more memory, take more ranks or a smaller batch"
    )
    enough = msgspec.structs.replace(problem, device_bytes=17)
    assert judge_layout(enough, Search().solve(enough, LIMITS).plan).clean  # type: ignore[arg-type]


def test_what_only_other_layouts_could_do_is_unknown() -> None:
    """All decisions of the larger space are considered before anything is called infeasible."""
    unknown = 0
    for seed in range(60):
        drawn = uneven_problem(seed)
        problem = msgspec.structs.replace(drawn, device_bytes=Least(instance(drawn)).roomy_bytes, host_bytes=1000)
        solution = Search().solve(problem, LIMITS)
        judged = check_plan(problem, plan_file(solution, "layout", None))
        assert [said for said in judged.violations if "no decision" not in said] == []
        assert (solution.plan is None) == (not every_configuration(problem))
        if solution.plan is None:
            assert solution.status is Status.UNKNOWN
            assert "try exact-layout" in (solution.reason or "")
            unknown += 1
    assert unknown > 0


def test_a_late_swap_makes_another_block_the_first_to_be_checkpointed() -> None:
    """Three blocks of 1 byte, interval 2; the first one's input has 2 bytes, the others' none.

    Swapping the first frees nothing before the end. But checkpointing begins with the second then: 1 + 0 bytes are held
    when the third runs, 2 in all, where other layouts hold at least 2, since whatever they checkpoint begins with the
    first.
    """
    drawn = random_problem(0)
    block = msgspec.structs.replace(
        drawn.blocks[0],
        choice=True,
        chunks=(),
        activation_bytes=1,
        input_bytes=0,
        forward_transient_bytes=0,
        backward_transient_bytes=0,
    )
    first = msgspec.structs.replace(block, input_bytes=2, chunks=tuple(range(len(drawn.chunks))))
    problem = msgspec.structs.replace(drawn, interval=2, blocks=(first, block, block), host_bytes=1000)
    peaks = all_layouts(problem).peak_bytes
    assert (peaks[0].tolist(), peaks[1, 1]) == ([3, 4, 3, 3], 2)
    least = Space(instance(problem)).least_bytes
    plan = Search().solve(msgspec.structs.replace(problem, device_bytes=least), LIMITS).plan
    assert plan is not None and plan.policies[:2] == ("swap", "checkpoint")


def test_parts_and_pruning_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looked at in parts of one count of persistent chunks each, and with every configuration timed: the same best."""
    for name in ("gpt2-10b", "llama-34b"):
        problem = problem_from_shape(read_shape(name), read_hardware("protrain-a100"), Rank(ranks=4), batch=8)
        space = Space(instance(problem))
        whole = space.best(6)
        with monkeypatch.context() as patched:
            patched.setattr(search, "AT_ONCE", 1)
            assert space.best(6) == whole
        with monkeypatch.context() as patched:
            patched.setattr(Analytic, "least_us", lambda self, layout: np.zeros((len(self.persist), len(layout))))
            assert space.best(6) == whole


def test_counts_are_spread_evenly_where_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    assert spread(4, 9).tolist() == [0, 1, 2, 3, 4]
    assert spread(100, 5).tolist() == [0, 25, 50, 75, 100]
    assert spread(7, 0).tolist() == [0, 7]
    assert shares([10, 3, 10], 300) == [10, 3, 10]
    assert shares([10, 3, 10], 27) == [3, 3, 3]
    assert shares([1000, 2, 1000], 800) == [20, 2, 20]
    problem = problem_from_shape(read_shape("gpt2-10b"), read_hardware("protrain-a100"), Rank(ranks=4), batch=8)
    assert left_out(problem) is None and Search().solve(problem, LIMITS).reason is None
    monkeypatch.setattr(layouts, "MOST", 1000)
    solution = Search().solve(problem, LIMITS)
    said = "10 of 50 counts of persistent chunks, 10 of 13 counts of swapped blocks, 10 of 49 counts of checkpointed"
    assert solution.reason == f"evenly spread, {said} blocks were tried"
    assert judge_layout(problem, solution.plan).objective_us == solution.objective  # type: ignore[arg-type]
