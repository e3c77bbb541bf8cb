"""The policies of a layer: every other one of all that there are is worse than some of them."""

from solvers.check.recompute_layer.front import policies_of
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
