"""What CUDA's allocator did on a real H100, asked of sim's: every number after every request."""

from pathlib import Path

import pytest

from experiments.gpu.requests import SCRIPTS
from experiments.gpu.traces import Trace, differences, read_traces, repeat
from runtime.device import CachingAllocator, use_sim
from tests.accelerators import prepare_sim

RECORDED = Path(__file__).resolve().parents[4] / "experiments/results/gpu/traces-h100.json"
TRACES = read_traces(RECORDED)
REFUSED = prepare_sim()
H100_BYTES = 85_017_493_504
pytestmark = pytest.mark.skipif(REFUSED is not None, reason=str(REFUSED))


def test_all_scripts_and_a_training_were_recorded_under_both_settings() -> None:
    for expandable in (False, True):
        names = [trace.name for trace in TRACES if trace.expandable is expandable]
        assert names == [*SCRIPTS, "training"]
    assert {trace.device for trace in TRACES} == {"NVIDIA H100 80GB HBM3"}
    assert sum(len(trace.events) for trace in TRACES) > 4000


@pytest.mark.parametrize(
    "trace", TRACES, ids=lambda trace: f"{trace.name}-{'pages' if trace.expandable else 'segments'}"
)
def test_sim_answers_as_the_device_did(trace: Trace) -> None:
    allocator = CachingAllocator(expandable_segments=trace.expandable)
    sim = use_sim(races="off", allocator=allocator, capacity_bytes=H100_BYTES)
    try:
        assert differences(trace, repeat(trace.events, sim.device, trace.limit_bytes)) == []
    finally:
        use_sim()
