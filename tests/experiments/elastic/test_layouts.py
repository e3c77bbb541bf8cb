"""The estimator beside measured steps: figures against the judge's own recurrence and against arithmetic by hand."""

import msgspec
import pytest

from experiments.elastic.layouts import layout_steps, layouts_table, predicted_us, problem_of, work_us
from solvers.check.replan.judge import pipeline_us
from solvers.ir.errors import InvalidInput
from solvers.ir.replan import CurrentPipeline
from tests.experiments.elastic.events import log
from tests.runtime.elastic.jobs import costs


def test_each_layout_has_both_figures() -> None:
    steps = layout_steps(log(), 2)
    assert [one.step_us for one in steps] == [55_000, None, 90_000, None]
    assert [(one.layout, one.nodes, one.steps) for one in steps[:2]] == [("layout 1", 4, 2), ("layout 2", 3, 0)]
    problem = costs(4)
    # Two pipelines are synchronized, one is not; the judge's recurrence shares no code with the solvers'.
    sync = problem.sync_us + 3 * problem.layer_sync_us
    expected = [pipeline_us(problem, (3, 3), 4) + sync, pipeline_us(problem, (2, 2, 2), 8), *(2 * [0])]
    assert [one.predicted_step_us for one in steps[:2]] == expected[:2]
    work = 8 * (6 * (1000 + 2000) + 100 + 200 + 200 + 400)
    assert work_us(problem, [CurrentPipeline(layers=(3, 3), nodes=(0, 1), microbatches=8)]) == work
    assert [one.on_cores_us for one in layout_steps(log(), 1)] == [work] * 4  # one core does all of it
    assert [one.on_cores_us for one in layout_steps(log(), 64)] == [one.predicted_step_us for one in steps]


def test_a_rerouted_layout_takes_longer() -> None:
    alike = [CurrentPipeline(layers=(3, 3), nodes=(2 * one, 2 * one + 1), microbatches=4) for one in range(2)]
    assert predicted_us(costs(4), alike, [1]) > predicted_us(costs(4), alike, [])


def test_the_table_tells_the_ratio_and_what_is_not_known() -> None:
    table = layouts_table([one._asdict() for one in layout_steps(log(), 1)], 1)
    assert "On these cores (1)" in table.note
    assert [line[-1] for line in table.body] == [f"{55_000 / 151_200:.2f}", "–", f"{90_000 / 151_200:.2f}", "–"]


def test_logs_without_costs_have_no_estimate_and_foreign_ones_are_refused() -> None:
    assert layout_steps([event for event in log() if event["event"] != "costs"], 2) == []
    foreign = [{"at_s": 0, "event": "costs", "problem": {**msgspec.to_builtins(costs(4)), "nodes": "many"}}]
    with pytest.raises(InvalidInput, match="another version's"):
        problem_of(foreign)
