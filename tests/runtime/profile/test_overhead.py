from runtime.profile.overhead import Overhead, dispatch_bound_step, measure_overhead


def test_nanoseconds_follow_from_the_ratios() -> None:
    # 2 % and 30 % of 1000 µs, over 200 operators.
    cost = Overhead(operators=200, base_us=1000.0, light_ratio=1.02, detailed_ratio=1.3)
    assert round(cost.light_ns) == 100
    assert round(cost.detailed_ns) == 1500


def test_a_dispatch_bound_step_is_measured() -> None:
    cost = measure_overhead(dispatch_bound_step(), rounds=3)
    assert cost.operators > 200
    assert cost.base_us > 0
    assert 0.5 < cost.light_ratio < cost.detailed_ratio * 1.5
    assert cost.detailed_ns < 100_000
