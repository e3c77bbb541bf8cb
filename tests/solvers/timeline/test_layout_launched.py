"""Layout schedules on a host that launches: without launches the plan's objective, with them what a hand works out."""

from hypothesis import given, settings
from msgspec.structs import replace

from solvers.check.layout.judge import judge_layout
from solvers.ir import LayoutPlan, LayoutProblem
from solvers.layout.evaluate import instance
from solvers.layout.lower import lower
from solvers.timeline.cost import NOTHING, Cost, one_launch
from solvers.timeline.layout_launched import LayoutCosts, Piece, predict_layout
from tests.solvers.layout.lowered import planned
from tests.solvers.timeline.test_layout import ONE


def costs_of(problem: LayoutProblem, launch_ns: int = 0) -> LayoutCosts:
    """A launch for every pass and every copy; gradients come as their pass ends."""

    def cost(time_us: int) -> Cost:
        return one_launch(launch_ns, 1000 * time_us)

    def pieces(number: int) -> tuple[Piece, ...]:
        done = [(NOTHING, chunk) for chunk in instance(problem).completes[number]]
        return ((cost(problem.blocks[number].backward_us), None), *done)

    forward = tuple(cost(block.forward_us) for block in problem.blocks)
    return LayoutCosts(
        launch_ns=launch_ns,
        forward=forward,
        recompute=forward,
        backward=tuple(map(pieces, range(len(problem.blocks)))),
        leaving=tuple((1000 * block.swap_out_us,) for block in problem.blocks),
        coming=tuple((1000 * block.swap_in_us,) for block in problem.blocks),
        load_ns=tuple(1000 * chunk.load_us for chunk in problem.chunks),
        offload_ns=tuple(1000 * chunk.offload_us for chunk in problem.chunks),
        cpu_update_ns=tuple(1000 * chunk.cpu_update_us for chunk in problem.chunks),
        device_update={number: cost(chunk.device_update_us) for number, chunk in enumerate(problem.chunks)},
        gradients=tuple(int(chunk.trainable) for chunk in problem.chunks),
    )


def alone(problem: LayoutProblem) -> LayoutProblem:
    """The same of one rank."""
    chunks = tuple(replace(chunk, gather_us=0, reduce_us=0, allreduce_us=0) for chunk in problem.chunks)
    return replace(problem, ranks=1, chunks=chunks)


@settings(max_examples=25)
@given(planned())
def test_without_launches_and_swaps_the_prediction_is_the_objective(
    found: tuple[LayoutProblem, LayoutPlan, int],
) -> None:
    """Where no update may overlap, the executor does not wait for passes that bring no gradients."""
    problem, plan = alone(found[0]), found[1]
    plan = replace(plan, policies=tuple("keep" if policy == "swap" else policy for policy in plan.policies))
    report = predict_layout(problem, lower(problem, plan), costs_of(problem))
    objective_us = judge_layout(problem, plan).objective_us
    assert objective_us is not None
    assert report.makespan_us == objective_us or (not problem.overlap_update and report.makespan_us < objective_us)
    assert len(report.spans) == len(lower(problem, plan).actions)


@settings(max_examples=25)
@given(planned())
def test_launches_shorten_nothing(found: tuple[LayoutProblem, LayoutPlan, int]) -> None:
    problem, plan = alone(found[0]), found[1]
    plain, slow = (predict_layout(problem, lower(problem, plan), costs_of(problem, launch)) for launch in (0, 3000))
    assert slow.makespan_us >= plain.makespan_us
    for span in slow.spans:
        assert span.end_us >= span.start_us


def test_a_launch_of_three_microseconds() -> None:
    """Two blocks on the device: the host issues a pass in 3 us, passes take 6 and 11."""
    plan = LayoutPlan(persistent=(0, 1), buffers=0, policies=("keep", "keep"))
    report = predict_layout(ONE, lower(ONE, plan), costs_of(ONE, 3000))
    times = {span.label: (span.start_us, span.end_us) for span in report.spans}
    assert [times[f"forward of layer {number}"] for number in (0, 1)] == [(0, 9), (9, 15)]
    assert [times[f"backward of layer {number}"] for number in (1, 0)] == [(15, 26), (26, 37)]


def test_costs_one_after_the_other() -> None:
    short, long = Cost(1, 4, 5), Cost(10, 4, 14)
    assert short.then(long) == Cost(11, 8, 18) and long.then(short) == Cost(11, 8, 15)
    waits = Cost(10, 4, 14, waits=True)
    assert waits.then(short) == Cost(15, 18, 19, waits=True)
    assert NOTHING.then(short) == short
    assert [one.alone_us for one in (NOTHING, Cost(2400, 0, 2600))] == [0, 3]
