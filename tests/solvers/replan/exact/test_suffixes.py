"""Times of last stages, remembered: the judge's, however much is known, whatever was forgotten meanwhile."""

import random

import msgspec
import numpy as np
import pytest

from solvers.check.replan.judge import pipeline_us
from solvers.ir import ReplanProblem
from solvers.replan.estimate.pipeline import every_batch_us
from solvers.replan.estimate.rounds import IntArray
from solvers.replan.exact import suffixes
from solvers.replan.exact.suffixes import Suffixes
from solvers.replan.progress import never
from tests.solvers.replan.exact.problems import random_problem


def alone_us(problem: ReplanProblem, layers: tuple[int, ...], microbatches: int, *, whole: bool) -> int:
    """By the judge: a model of these layers, without the extras of a begin that is elsewhere."""
    first = problem.first_extra_us if whole else (0, 0)
    return pipeline_us(msgspec.structs.replace(problem, layers=sum(layers), first_extra_us=first), layers, microbatches)


@pytest.mark.parametrize("cells", [2**22, 400, 60, 0])
@pytest.mark.parametrize("seed", range(12))
def test_times_are_the_judge_s(monkeypatch: pytest.MonkeyPatch, seed: int, cells: int) -> None:
    monkeypatch.setattr(suffixes, "_CELLS", cells)
    source, problem = random.Random(seed), random_problem(seed)
    known = Suffixes(problem)
    for _ in range(12):
        stages, microbatches, whole = source.randint(1, 4), source.randint(1, 40), source.random() < 0.5
        splits = [[source.randint(1, 3) for _ in range(stages)] for _ in range(source.randint(1, 5))]
        found = known.times_us(np.array(splits), microbatches, whole=whole, stop=never)
        assert found.tolist() == [alone_us(problem, tuple(layers), microbatches, whole=whole) for layers in splits]


def test_what_is_known_is_not_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    known, computed = Suffixes(random_problem(3)), list[int]()
    plain = every_batch_us

    def counting(forward: IntArray, backward: IntArray, most: int, p2p_us: int) -> IntArray:
        computed.append(len(forward))
        return plain(forward, backward, most, p2p_us)

    monkeypatch.setattr(suffixes, "every_batch_us", counting)
    for splits, microbatches in (([[1, 2], [2, 1]], 16), ([[2, 1], [1, 1]], 17), ([[1, 1]], 3), ([[1, 1]], 30)):
        known.times_us(np.array(splits), microbatches, whole=True, stop=never)
    assert computed == [2, 1, 1]  # of the second call one, of the third none, the last asks for more microbatches
