"""What a layout takes: the same as the independent judge says, on decisions valid and not."""

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from solvers.check.layout.buffers import bound_to_buffers, passes_of
from solvers.check.layout.floor import base_us
from solvers.check.layout.judge import device_peak, host_bytes, judge_layout
from solvers.check.layout.lanes import task_ends
from solvers.layout import evaluate as ours
from solvers.layout.answers import floor_us
from tests.strategies import layout_plans, layout_problems


@settings(max_examples=150)
@given(st.data())
def test_times_memory_and_buffers_are_the_judges(data: st.DataObject) -> None:
    problem = data.draw(layout_problems(max_blocks=7, max_chunks=7))
    plan = data.draw(layout_plans(problem))
    given = ours.instance(problem)
    assert floor_us(given) == base_us(problem)
    assert ours.device_bytes(given, plan) == device_peak(problem, plan)[0]
    assert ours.host_bytes(given, plan) == host_bytes(problem, plan)
    least = max(map(len, bound_to_buffers(problem, passes_of(problem, plan.persistent))))
    assert ours.least_buffers(given, plan.persistent) == least
    if plan.buffers >= least:
        ends = task_ends(problem, plan)
        step = ours.evaluate(given, plan)
        assert step.end_us == max(ends.values())
        assert step.forward_us == ends["forward", len(problem.blocks) - 1]
        assert step.backward_us == ends["backward", 0]
    fits = ours.device_bytes(given, plan) <= problem.device_bytes and ours.host_bytes(given, plan) <= problem.host_bytes
    assert judge_layout(problem, plan).clean == (plan.buffers >= least and fits)


@settings(max_examples=60)
@given(st.data())
def test_what_is_remembered_of_other_plans_changes_nothing(data: st.DataObject) -> None:
    """One instance for plans that share persistent chunks, buffers or policies, and a fresh one for each."""
    problem = data.draw(layout_problems(max_blocks=5, max_chunks=5))
    one, other = data.draw(layout_plans(problem)), data.draw(layout_plans(problem))
    mixed = [replace(one, policies=other.policies), replace(one, buffers=other.buffers), replace(other, persistent=())]
    given = ours.instance(problem)
    for plan in [one, other, *mixed, one]:
        if plan.buffers >= ours.least_buffers(given, plan.persistent):
            assert ours.evaluate(given, plan) == ours.evaluate(ours.instance(problem), plan)
            assert ours.moves(given, plan) == ours.moves(ours.instance(problem), plan)
