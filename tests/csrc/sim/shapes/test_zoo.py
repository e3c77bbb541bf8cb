"""Networks that nobody tuned for, by shapes alone and with bytes: the same kernels, bytes, nanoseconds and tensors."""

import gc
from collections.abc import Iterator

import pytest
import torch

from experiments.temporaries.networks import Build
from experiments.temporaries.zoo import MEASURED_SIZES, ZOO
from runtime.device import SimDevice, use_sim
from runtime.device.native import why_missing
from runtime.profile import profile_step
from solvers.ir.graph import OpGraph

SIZE = 3
"""None of those whose kernels were measured for the table of temporaries."""
QUICK = {
    "LSTM in both directions",
    "bags with offsets, mean",
    "experts",
    "group norm, channels last",
    "attention by hand, bfloat16",
}
"""Looked at every time; `make soak` looks at all."""
FARTHEST = 0.02
"""How far a peak may be off where a kernel within it is estimated, of networks without convolutions or LSTM layers."""
BLOCKS = ("convolution", "mkldnn_rnn_layer")
"""Kernels of oneDNN whose blocks no rule knows."""


@pytest.fixture(autouse=True)
def one_thread_and_bytes_again() -> Iterator[None]:
    """As the table was measured; the next test has bytes."""
    reason = why_missing("runtime._sim")
    if reason is not None:
        pytest.skip(reason)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    gc.collect()
    use_sim()


def profiled(build: Build, *, shapes_only: bool) -> tuple[OpGraph, SimDevice]:
    gc.collect()
    sim = use_sim(shapes_only=shapes_only)
    trained = build(sim.device)
    return profile_step(trained.step, sim.device, model=trained.model, optimizer=trained.optimizer, warmup=1), sim


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.soak) for name in ZOO])
def test_a_network_of_any_kind_looks_the_same(name: str) -> None:
    assert SIZE not in MEASURED_SIZES
    real, _ = profiled(ZOO[name](SIZE), shapes_only=False)
    seen, sim = profiled(ZOO[name](SIZE), shapes_only=True)
    assert seen.ops == real.ops and seen.tensors == real.tensors
    assert sim.unmeasured_temporaries() == {}
    if not any(kernel.startswith(BLOCKS) for kernel in sim.doubtful_temporaries()):
        assert max(seen.memory_bytes) == pytest.approx(max(real.memory_bytes), rel=FARTHEST)
