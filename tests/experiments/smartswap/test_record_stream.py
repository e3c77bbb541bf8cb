"""Figure 8: both ways within one budget, what they cost the host, and how the figures are labelled."""

from pathlib import Path

import pytest

from experiments.hardware import read_hardware
from experiments.reproduction import OUT_OF_MEMORY, Cells, Result
from experiments.smartswap.executed import gpt_of, reduced
from experiments.smartswap.record_stream import Trial, figure_8, under_session, unlimited
from runtime.device import native
from solvers.ir.hardware import Hardware

pytestmark = pytest.mark.skipif(
    native.why_missing("runtime._sim") is not None, reason=str(native.why_missing("runtime._sim"))
)
MACHINE = "smartswap-910b"
SHAPE = {"layers": 4, "hidden": 32, "sequence": 32, "batch": 4}
HEAD_WIDTH = 8
RATIO = "mean interval, torch over printed"


def machine(launch_us: float) -> Hardware:
    return reduced(read_hardware(MACHINE), 1000, 6, launch_us=launch_us)


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    cells = Cells(tmp_path_factory.mktemp("cells"), hardware_names=(MACHINE,))
    return figure_8(
        cells,
        machine=MACHINE,
        slower={"flops": 1000, "rates": 6},
        shape=SHAPE,
        head_width=HEAD_WIDTH,
        layers=[4],
        launches_us=[0.5, 20],
        ways=["printed", "custom", "torch"],
        trial={"budget_share": 0.7, "event_query_ns": 1000, "iterations": 11, "measured": 1},
    )


def test_both_ways_are_measured_at_every_label(result: Result) -> None:
    labels = ["layers 4 launch 0.5", "layers 4 launch 20"]
    assert all(list(series.numbers()) == labels for series in result.series if not series.name.startswith("longest"))
    assert result.named("custom, kernels").points == result.named("torch, kernels").points


def test_only_pytorchs_way_looks_at_events(result: Result) -> None:
    for way in ("printed", "custom"):
        assert set(result.named(f"{way}, event queries").numbers().values()) == {0}
    assert min(result.named("torch, event queries").numbers().values()) > 1


def test_blocks_wait_longer_for_the_allocator_the_further_the_host_runs_ahead(result: Result) -> None:
    mine, theirs = (result.named(f"{way}, mean interval").numbers() for way in ("printed", "torch"))
    assert all(theirs[label] > mine[label] for label in mine), (mine, theirs)
    assert theirs["layers 4 launch 0.5"] > theirs["layers 4 launch 20"]
    assert result.named(RATIO).numbers() == {label: theirs[label] / mine[label] for label in mine}


@pytest.mark.parametrize("way", ["printed", "custom"])
def test_the_engines_own_ways_never_let_the_host_wait(result: Result, way: str) -> None:
    assert set(result.named(f"{way}, host waits").numbers().values()) == {0}


def test_a_look_costs_the_host_its_time() -> None:
    """The same loop, host-bound, with looks that cost nothing: it is faster by about what they cost."""
    shape, device = gpt_of(SHAPE, HEAD_WIDTH), machine(20)
    peak = int(unlimited(device, shape)["peak_bytes"] or 0)
    trials = [Trial(budget_share=0.7, event_query_ns=ns, iterations=15, measured=3) for ns in (0, 5000)]
    free, dear = (under_session(device, shape, "torch", trial, peak) for trial in trials)
    assert free["step_s"] is not None and dear["step_s"] is not None
    assert dear["step_s"] > free["step_s"]


def test_a_budget_below_the_working_set_is_an_outcome(tmp_path: Path) -> None:
    result = figure_8(
        Cells(tmp_path, hardware_names=(MACHINE,)),
        machine=MACHINE,
        slower={"flops": 1000, "rates": 6},
        shape=SHAPE,
        head_width=HEAD_WIDTH,
        layers=[1],
        launches_us=[2],
        ways=["printed", "custom", "torch"],
        trial={"budget_share": 0.01, "event_query_ns": 0, "iterations": 18, "measured": 1},
    )
    assert result.named("custom, step").points == {"layers 1 launch 2": OUT_OF_MEMORY}
    assert result.named("step, torch over custom").points == {"layers 1 launch 2": None}
    assert result.named("unlimited, step").numbers()["layers 1 launch 2"] > 0
