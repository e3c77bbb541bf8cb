"""The section `tape`: what it compares, and that each figure is there; how long anything took is not tested."""

from experiments.bench.tape import DEVICES, OBSERVER, WAYS, tape_figures


def test_both_devices_and_both_passes_have_every_way() -> None:
    figures = tape_figures(2)
    names = [figure.name for figure in figures]
    assert len(names) == len(set(names)) == len(DEVICES) * 2 * (2 + 3 * (len(WAYS) - 1))
    for device in DEVICES:
        assert f"{device}, forward, tape, added per recorded operator" in names
        assert f"{device}, forward and backward, {OBSERVER}, added per dispatched operator" in names
    assert all(figure.value is not None for figure in figures)
