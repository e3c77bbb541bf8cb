"""The table behind the partition holds what HEU answers for each stage and number of layers, one by one."""

import pytest

from experiments.hardware import read_hardware
from experiments.lynx.search import search_heu, search_partition, searched
from experiments.shapes import read_shape
from solvers.check import check_plan
from solvers.ir import InvalidInput, Limits, Status
from solvers.ir.codec import plan_file, problem_sha256
from solvers.partition.pipeline import Pipeline, pipeline_within
from solvers.recompute.layer import Heu
from solvers.workload import stage_extras


@pytest.fixture
def pipeline() -> Pipeline:
    """GPT-1.3B in four stages, with so little memory that early stages cannot have all counts."""
    split = {"tensor": 4, "pipeline": 4}
    return pipeline_within(read_shape("gpt-1.3b"), read_hardware("lynx-nvlink"), split, microbatch=8, share=0.3)


def test_the_table_is_heus_answer_everywhere(pipeline: Pipeline) -> None:
    table = pipeline.stage_costs()
    assert (table.stages, table.layers) == (4, 24)
    absent = 0
    for stage in range(4):
        extras = stage_extras(pipeline.shape, pipeline.parallelism, pipeline.machine, stage)
        extra_us = sum(extra.forward_us + extra.backward_us for extra in extras)
        for layers in (1, 2, 5, 6, 7, 9, 13, 21):
            answer = Heu().solve(pipeline.heu_problem(stage, layers), Limits())
            cost = table.cost_us[stage][layers]
            absent += cost is None
            if answer.objective is None:
                assert answer.status is Status.INFEASIBLE and cost is None
                continue
            work = layers * (pipeline.costs.forward_us + pipeline.costs.backward_us)
            assert cost == work + answer.objective + extra_us
    assert 0 < absent < 32
    assert all(cost is None for row in table.cost_us for cost in row[22:])


def test_the_answers_are_judged_clean(pipeline: Pipeline) -> None:
    problem = pipeline.heu_problem(0, pipeline.even_layers())
    sha256 = problem_sha256(problem)
    heu = search_heu(pipeline)
    assert heu.objective is not None and heu.objective > 0
    assert check_plan(problem, plan_file(heu, problem.KIND, sha256), sha256).clean
    table, partition = pipeline.stage_costs(), search_partition(pipeline)
    sha256 = problem_sha256(table)
    assert check_plan(table, plan_file(partition, table.KIND, sha256), sha256).clean
    assert partition.status is Status.OPTIMAL


def test_each_run_begins_with_nothing_remembered(pipeline: Pipeline) -> None:
    seen = []

    def search(asked: Pipeline) -> object:
        answer = search_heu(asked)
        seen.append(answer.objective)
        return answer

    found = searched(search, pipeline, 3)  # type: ignore[arg-type]
    assert len(set(seen)) == 1 and len(seen) == 3
    assert 0 < found.processor_s < 10
    assert found.seconds > 0


def test_a_share_is_a_share(pipeline: Pipeline) -> None:
    with pytest.raises(InvalidInput, match=r"share is 1\.5"):
        pipeline_within(pipeline.shape, pipeline.machine, {"tensor": 4, "pipeline": 4}, microbatch=8, share=1.5)
