"""What a layout promised beside what it took."""

import pytest

from runtime.device import SimDevice, reset_peak_memory
from runtime.layout import report, unwrap
from tests.runtime.layout.models import Language, lora
from tests.runtime.layout.training import Layouts, plain_loop


def test_peaks_are_the_predicted_ones(sim: SimDevice) -> None:
    layouts = Layouts(lambda: Language(6, 128), None)
    for seed in range(6):
        model, optimizer = layouts.wrapped(layouts.random_plan(seed))
        plain_loop(model, optimizer, 1)
        reset_peak_memory(sim.device)
        plain_loop(model, optimizer, 2)
        told = report(model)
        assert told.peak_bytes == pytest.approx(told.predicted_peak_bytes, rel=1e-3), told
        unwrap(model)


def test_lanes_of_the_last_step_are_those_of_the_plan(sim: SimDevice) -> None:
    layouts = Layouts(Language)
    model, optimizer = layouts.wrapped(layouts.random_plan(4))
    assert report(model).step_us is None and report(model).spans == ()
    plain_loop(model, optimizer, 3)
    told = report(model)
    planned = {(one.lane, one.what, one.number) for one in told.predicted_spans}
    ran = {(one.lane, one.what, one.number) for one in told.spans}
    assert planned == ran
    assert told.step_us is not None
    assert all(0 <= one.start_us <= one.end_us <= told.step_us + 1 for one in told.spans)
    text = str(told)
    assert "plan          given" in text and "beside backward" in text and "departures    0" in text


def test_steps_are_the_predicted_ones(sim: SimDevice) -> None:
    """Kernels of some microseconds, which the host can hardly launch as fast: every launch counts."""
    for make in (lambda: Language(6, 128), lambda: Language(5, 96, tied=True), lambda: lora(5, 128)):
        layouts = Layouts(make, None)
        for seed in range(3):
            model, optimizer = layouts.wrapped(layouts.random_plan(seed))
            plain_loop(model, optimizer, 3)
            told = report(model)
            assert told.step_us == pytest.approx(told.predicted_step_us, rel=0.01), told
            unwrap(model)
