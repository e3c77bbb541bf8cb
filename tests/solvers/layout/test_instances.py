"""The shipped instances are the generator's, and the paper's own plans for them are valid."""

from pathlib import Path

import pytest

from experiments.hardware import read_hardware
from experiments.shapes import read_shape
from solvers.check.layout.judge import judge_layout
from solvers.ir.codec import read_problem
from solvers.ir.layout import LayoutProblem
from solvers.layout.instances import INSTANCES, shipped_problem

SHIPPED = Path(__file__).parents[3] / "experiments" / "instances"


def generated(name: str) -> LayoutProblem:
    row = INSTANCES[name]
    return shipped_problem(name, read_shape(row.shape), read_hardware(row.hardware))


@pytest.mark.parametrize("name", INSTANCES)
def test_the_shipped_file_is_the_generator_s(name: str) -> None:
    problem, _ = read_problem(SHIPPED / f"{name}.json")
    assert problem == generated(name)
    assert problem.name == name


def test_every_shipped_instance_has_a_generator() -> None:
    assert sorted(INSTANCES) == sorted(path.stem for path in SHIPPED.glob("layout-*.json"))


@pytest.mark.parametrize("name", INSTANCES)
def test_the_paper_s_plan_is_valid(name: str) -> None:
    problem = generated(name)
    assert judge_layout(problem, INSTANCES[name].plan(problem)).violations == ()


def test_row_d() -> None:
    """GPT2-10B on four RTX 3090: the paper has 48 blocks and 49 chunks; ours has embedding and head as blocks, too."""
    problem = generated("layout-gpt2-10b-3090")
    assert (problem.ranks, len(problem.blocks), len(problem.chunks)) == (4, 50, 49)
    assert problem.device_bytes == 24 << 30
