"""Graphs by name: the same for ever, of every family, and refused in a sentence where there is none."""

import pytest

from experiments.graphs.forward import FORWARD
from experiments.graphs.names import by_name, family_of
from experiments.graphs.race import GRAPHS
from solvers.ir.codec import problem_sha256
from solvers.ir.errors import InvalidInput
from solvers.recompute.graph.instances import peak_bytes


def test_sixty_graphs_of_nine_families_up_to_a_thousand_operators() -> None:
    assert len(GRAPHS) >= 60
    assert {family_of(name) for name in GRAPHS} == {"layered", "wide", "vision", *FORWARD}


@pytest.mark.parametrize("family", ["layered", "wide", *FORWARD])
def test_a_name_is_one_graph_with_forward_and_backward(family: str) -> None:
    problem = by_name(f"{family}-60-s3@0.4")
    assert 40 <= len(problem.ops) <= 60
    assert all(i < place for place, op in enumerate(problem.ops) for i in op.inputs)
    assert problem.budget_bytes < peak_bytes(problem)
    assert problem_sha256(problem) == problem_sha256(by_name(f"{family}-60-s3@0.4"))
    assert problem_sha256(problem) != problem_sha256(by_name(f"{family}-60-s4@0.4"))


def test_a_graph_is_the_one_of_the_kept_results() -> None:
    problem = by_name("series-parallel-60-s0@.5")
    assert (len(problem.ops), sum(op.time_us for op in problem.ops), problem.budget_bytes) == (60, 2558, 124900606)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("layered-60-s3", "is no name of a graph"),
        ("star-60-s3@0.4", "there is no family 'star'"),
        ("vgg17@0.4", "did you mean 'vgg16'"),
        ("tree-3-s0@0.4", "the limits are 4 and 10000"),
    ],
)
def test_other_names_are_refused(name: str, sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        by_name(name)
