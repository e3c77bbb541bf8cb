"""Responses of the last stages, stage by stage, against the judge's pipelines."""

import random

import numpy as np
import pytest

from solvers.check.replan.judge import pipeline_us
from solvers.replan.exact import responses as module
from solvers.replan.exact.bounds import FILLING
from solvers.replan.exact.responses import narrowest, respond, undominated
from tests.solvers.replan.exact.problems import random_problem


def test_the_response_of_all_stages_is_the_time_of_the_pipeline() -> None:
    for seed in range(40):
        source, problem = random.Random(seed), random_problem(seed)
        depth, count = source.randint(1, min(5, problem.layers)), source.randint(1, 9)
        layers = [1] * depth
        for _ in range(problem.layers - depth):
            layers[source.randrange(depth)] += 1
        response = None
        for k in range(1, depth + 1):
            extras = [problem.first_extra_us] * (k == depth) + [problem.last_extra_us] * (k == 1)
            one = (problem.forward_us, problem.backward_us)
            forward, backward = (
                np.array([layers[-k] * one[way] + sum(extra[way] for extra in extras)]) for way in (0, 1)
            )
            response = respond(response, k, forward, backward, count, problem.p2p_us)
        assert response is not None
        assert response[0, -1, 0] == pipeline_us(problem, tuple(layers), count)


def test_only_responses_of_the_same_group_replace_each_other() -> None:
    small, large, mixed = np.array([[1, 2], [3, 4]]), np.array([[1, 3], [3, 5]]), np.array([[0, 9], [3, 4]])
    responses = np.stack([large, small, mixed, small, large])
    assert undominated(np.array([0, 0, 0, 0, 1]), responses).tolist() == [1, 2, 4]


def test_responses_of_32_bits_are_those_of_64() -> None:
    source = np.random.default_rng(3)
    for m in (1, 2, 5, 13):
        narrow = wide = None
        for k in range(1, 9):
            forward, backward = source.integers(0, 1000, (2, 7))
            kind = narrowest(10**6)
            narrow = respond(narrow, k, forward.astype(kind), backward.astype(kind), m, 17)
            wide = respond(wide, k, forward, backward, m, 17)
            heard = np.arange(m) <= np.arange(m)[:, None] + k - 1  # before a forward arrives nothing is heard of it
            assert (narrow.dtype.itemsize, wide.dtype.itemsize) == (4, 8)
            assert (narrow[:, heard] == wide[:, heard]).all()
            assert (narrow[:, ~heard] < 0).all() and (wide[:, ~heard] < 0).all()


@pytest.mark.skipif(FILLING is None, reason="the native extension was not built: run make build")
@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_the_native_extension_says_the_same(kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    source, native = np.random.default_rng(5), FILLING
    for m, number in ((1, 5), (2, 40), (7, 33), (13, 90)):
        behind = None
        for k in range(1, 18):
            forward, backward = source.integers(0, 30, (2, number)).astype(kind)
            groups, rank = np.sort(source.integers(0, 4, number)), source.integers(0, 3, number) if k % 2 else None
            found = list[tuple[np.ndarray, np.ndarray]]()
            for some in (native, None):
                monkeypatch.setattr(module, "FILLING", some)
                response = respond(behind, k, forward, backward, m, 17)
                found.append((response, undominated(groups, response, rank=rank)))
            (one, kept), (other, others) = found
            assert one.dtype == other.dtype == kind and (one == other).all()
            assert kept.tolist() == others.tolist()
            behind = one
