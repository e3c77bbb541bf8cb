"""The section `offload`: rows by hand as figures, and a small race on sim."""

import pytest
import torch

from experiments.bench.offload import offload_figures
from experiments.bench.offload.figures import figure_of
from experiments.bench.offload.model import RaceShape
from experiments.bench.offload.run import Ran, Way
from experiments.bench.offload.ways import PLAIN
from tests.accelerators import prepare_sim

prepare_sim()
MIB = 1 << 20
DONE = Ran(
    "plain", 60.0, 10 * MIB, 12 * MIB, pinned_bytes=3 * MIB, retries=2, settled_retries=0, hidden=0.5, losses=(3.0, 2.0)
)


@pytest.fixture
def on_sim(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine without CUDA."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def test_a_row_stands_beside_the_plain_one() -> None:
    figure = figure_of(DONE, Ran("plain", 40.0, losses=(3.0, 2.0)), "2 x 8, session", "sim")
    assert (figure.name, figure.value, figure.unit, figure.ratio, figure.ratio_to) == (
        "2 x 8, session",
        60.0,
        "µs",
        1.5,
        "plain",
    )
    assert figure.how == (
        "peak 10.0, segments 12.0 MiB; pinned 3.0 MiB; 2 retries (0 after warm-up); 50% of copies hidden; "
        "losses equal; sim"
    )


def test_other_losses_are_said() -> None:
    """The steps that both did count: a way that is measured for longer has more of them."""
    longer = Ran("plain", 60.0, losses=(3.0, 2.0, 1.0))
    assert DONE.equals(longer) and longer.equals(DONE)
    other = Ran("session", 60.0, losses=(3.0, 2.5))
    assert not other.equals(longer)
    assert "losses differ" in figure_of(other, longer, "session", "sim").how
    assert not Ran("nothing").equals(DONE)


def test_a_way_that_failed_is_no_figure() -> None:
    figure = figure_of(Ran("trl", error="InvalidInput: trl is not installed"), DONE, "trl", "sim")
    assert (figure.value, figure.ratio, figure.how) == (None, None, "InvalidInput: trl is not installed")


def test_a_small_race_on_sim(on_sim: None) -> None:
    figures = offload_figures([RaceShape(layers=2, width=16, heads=2, context=16, batch=2)], [PLAIN])
    exact, caching = figures
    assert (exact.name, caching.name) == ("2 x 16 exact, plain", "2 x 16 caching, plain")
    assert exact.value is not None and caching.value is not None and exact.ratio == caching.ratio == 1
    assert "allocator exact" in exact.how and "segments 2" not in exact.how
    assert "allocator caching" in caching.how and "segments 2.0 MiB" in caching.how  # whole segments
    assert exact.how.endswith("losses equal; sim, modelled time, allocator exact")


def test_without_sim_and_cuda_the_section_says_what_is_missing(on_sim: None, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = "runtime._sim is not built: run `make build`"
    monkeypatch.setattr("runtime.device.native.why_missing", lambda name: missing if name == "runtime._sim" else None)
    (figure,) = offload_figures([], [Way("plain")])
    assert (figure.name, figure.value, figure.how) == ("race", None, missing)
