"""The section `tracing`: traced steps take as long on the device as others, and neither makes an event."""

from experiments.bench.tracing import DEVICE, GOAL, HOST, MADE, tracing_figures


def test_a_traced_step_takes_no_longer_on_the_device_and_makes_no_events() -> None:
    figures = {figure.name: figure for figure in tracing_figures(2)}
    assert list(figures) == [DEVICE, HOST, MADE]
    ratio = figures[DEVICE].ratio
    assert ratio is not None and abs(ratio - 1) <= GOAL - 1
    assert figures[MADE].value == 0
    assert (figures[HOST].value or 0) > 0
