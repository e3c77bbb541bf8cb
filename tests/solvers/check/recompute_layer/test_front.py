"""The policies of a layer: every other one of all that there are is worse than some of them."""

import pytest

from solvers.check.recompute_layer import front
from solvers.check.recompute_layer.front import policies_of
from solvers.ir import LayerOp, RecomputeLayerProblem
from tests.solvers.recompute.layer.brute_force import every_figure, random_problem


def test_every_policy_is_replaced_by_one_of_the_front_and_each_of_these_exists() -> None:
    for seed in range(60):
        problem = random_problem(seed)
        found, flying = policies_of(problem), problem.inflight_microbatches
        assert found is not None
        front = list(zip(found.time_us, found.share_bytes, found.working_bytes, strict=True))
        every = {(time, flying * kept + forward, working) for time, kept, forward, working, _ in every_figure(problem)}
        assert set(front) <= every
        for time, share, working in every:
            assert any(t <= time and g <= share and g + w <= share + working for t, g, w in front), seed


def wide(ops: int) -> RecomputeLayerProblem:
    """Ops of which none replaces another: each byte stored is worth a microsecond of its own."""
    made = tuple(
        LayerOp(name="op", time_us=3**i, output_bytes=3**i, inputs=(), comm=False, needed=True) for i in range(ops)
    )
    return RecomputeLayerProblem(
        name="wide",
        layers=2,
        inflight_microbatches=1,
        last_stage=False,
        budget_bytes=10**9,
        static_bytes=0,
        layer_input_bytes=0,
        windows=(),
        ops=made,
    )


def test_too_many_comparisons_are_given_up_long_before_too_many_policies(monkeypatch: pytest.MonkeyPatch) -> None:
    found = policies_of(wide(8))
    assert found is not None
    assert len(found.time_us) == 2**8  # all that there are
    assert front.MOST_PARTIAL > 2**15  # it is not the number of policies that gives up
    assert policies_of(wide(15)) is None
    enumeration = front._Enumeration(wide(10))
    assert enumeration.run() is not None
    monkeypatch.setattr(front, "MOST_COMPARISONS", enumeration.comparisons - 1)
    assert policies_of(wide(10)) is None
    monkeypatch.setattr(front, "MOST_COMPARISONS", enumeration.comparisons)
    assert policies_of(wide(10)) is not None
