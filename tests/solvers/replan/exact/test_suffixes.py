"""Times of last stages: the judge's, pass by pass or by rounds that repeat."""

import random

import msgspec
import numpy as np
import pytest

from solvers.check.replan.judge import pipeline_us
from solvers.ir import ReplanProblem
from solvers.replan.exact import suffixes
from solvers.replan.exact.suffixes import Suffixes
from solvers.replan.progress import never
from tests.solvers.replan.exact.problems import random_problem


def alone_us(problem: ReplanProblem, layers: tuple[int, ...], microbatches: int, *, whole: bool) -> int:
    """By the judge: a model of these layers, without the extras of a begin that is elsewhere."""
    first = problem.first_extra_us if whole else (0, 0)
    return pipeline_us(msgspec.structs.replace(problem, layers=sum(layers), first_extra_us=first), layers, microbatches)


@pytest.mark.parametrize("passes", [2**14, 40, 0])
@pytest.mark.parametrize("seed", range(12))
def test_times_are_the_judge_s(monkeypatch: pytest.MonkeyPatch, seed: int, passes: int) -> None:
    monkeypatch.setattr(suffixes, "_PASSES", passes)
    source, problem = random.Random(seed), random_problem(seed)
    known = Suffixes(problem)
    for _ in range(12):
        stages, microbatches, whole = source.randint(1, 4), source.randint(1, 40), source.random() < 0.5
        splits = [[source.randint(1, 3) for _ in range(stages)] for _ in range(source.randint(1, 19))]
        found = known.times_us(np.array(splits), microbatches, whole=whole, stop=never)
        assert found.tolist() == [alone_us(problem, tuple(layers), microbatches, whole=whole) for layers in splits]
