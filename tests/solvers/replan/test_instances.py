"""The shipped instances are the generator's, their clusters ran before the failure, and they are the paper's."""

from pathlib import Path

import msgspec
import pytest

from solvers.check.replan.judge import judge_replan
from solvers.ir import NewPipeline, ReplanPlan, ReplanProblem
from solvers.ir.codec import read_problem
from solvers.replan.instances import INSTANCES, Model

SHIPPED = Path(__file__).parents[3] / "experiments" / "instances"


@pytest.mark.parametrize("name", INSTANCES)
def test_the_shipped_file_is_the_generator_s(name: str) -> None:
    problem, _ = read_problem(SHIPPED / f"{name}.json")
    assert problem == INSTANCES[name]()
    assert problem.name == name


def test_every_shipped_instance_has_a_generator() -> None:
    assert sorted(INSTANCES) == sorted(path.stem for path in SHIPPED.glob("replan-*.json"))


@pytest.mark.parametrize("name", INSTANCES)
def test_what_ran_before_the_failure_was_a_valid_plan(name: str) -> None:
    """Memory above all: every stage of the state before fits, so the failure alone makes the problem."""
    problem = INSTANCES[name]()
    assert problem.current is not None and problem.current.failed
    pipelines = tuple(
        NewPipeline(layers=before.layers, microbatches=before.microbatches, nodes=None)
        for before in problem.current.pipelines
    )
    everyone = problem.nodes + len(problem.current.failed)
    before = msgspec.structs.replace(
        problem, nodes=everyone, current=None, restart_us=None, bytes_per_s=None, expected_interval_us=None
    )
    plan = ReplanPlan(policy="dynamic", pipelines=pipelines, transfers=None)
    assert judge_replan(before, plan).violations == ()


def shape(problem: ReplanProblem) -> tuple[int, int, int, int]:
    """Pipelines, stages, nodes alive, layers."""
    assert problem.current is not None
    return len(problem.current.pipelines), len(problem.current.pipelines[0].nodes), problem.nodes, problem.layers


def test_they_are_the_paper_s_cases() -> None:
    found = {name: shape(make()) for name, make in INSTANCES.items()}
    assert found == {
        "replan-figure-3": (3, 3, 8, 9),
        "replan-8-to-7": (2, 4, 7, 32),
        "replan-8-to-7-short": (4, 2, 7, 16),
        "replan-32-to-24-tp8": (2, 2, 3, 32),
        "replan-2048": (128, 16, 2041, 80),
    }


def test_a_layer_is_llama_2_s() -> None:
    """202,383,360 parameters; 2 · 2.024e8 · 4096 + 4 · 4096² · 4096 operations at 156 TFLOP/s take 12.39 ms."""
    model = Model(layers=32)
    assert model.parameters == 202_383_360
    assert model.forward_us == 12_390
    assert Model(layers=32, tensor=8).parameters * 8 == 202_383_360
