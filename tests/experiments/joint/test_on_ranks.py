"""Joint plans under tensor parallelism: what a pass takes is what was predicted, on every rank."""

import gc
from collections.abc import Iterator
from dataclasses import replace

import pytest

from experiments.joint.on_ranks import Asked, cluster, on_ranks, row
from experiments.models import GptShape
from solvers.ir.solution import Limits
from tests.accelerators import prepared

SHAPE = GptShape(layers=4, width=256, heads=4, context=256, batch=16)


@pytest.fixture(autouse=True)
def bytes_again() -> Iterator[None]:
    """Afterwards the device has bytes."""
    yield
    gc.collect()
    prepared("sim")


def test_passes_take_what_was_predicted_on_both_ranks() -> None:
    free = Asked(SHAPE, 2, "greedy-joint", Limits(work=0.02))
    peak = max(one.peak_bytes for one in on_ranks(free, cluster(4)))
    done = on_ranks(replace(free, share=0.75, peak_bytes=peak), cluster(4))
    worst, cells = row(0.75, done)
    assert abs(worst) <= 0.005 and cells[0] == "75%"
    for one in done:
        report = one.report
        assert report is not None and report.peak_bytes <= report.predicted_peak_bytes <= report.budget_bytes
        assert report.swapped_out == report.swapped_in > 0 and report.refused == report.replanned == 0
        assert (one.moves, one.replays, one.base_us) == (done[0].moves, done[0].replays, done[0].base_us)
