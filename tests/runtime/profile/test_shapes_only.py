"""A step profiled by shapes alone is the step profiled with bytes: operators, tensors, microseconds, memory."""

import gc
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import msgspec
import pytest
import torch

from experiments.bench.programs import mlp, resnet, tied_gpt
from experiments.models import GptShape
from experiments.temporaries.networks import LANGUAGE, encoder_decoder, trained
from runtime.device import SimDevice, use_sim
from runtime.device.native import why_missing
from runtime.device.temporaries import about_rules
from runtime.profile import profile_step
from runtime.profile.step import SIM_SHAPES
from solvers.ir.graph import OpGraph
from tests.runtime.swap.models.loops import LOOPS
from tests.runtime.swap.models.networks import NETWORKS

Build = Callable[[torch.device], Any]
MODELS: dict[str, Build] = {
    "MLP": mlp,
    "ResNet with batch norm": resnet,
    "convolutions with batch norm": NETWORKS["convolution-batchnorm"],
    "GPT with dropout": GptShape(layers=2).build,
    "GPT that recomputes": partial(GptShape(layers=2).build, recompute=True),
    "tied GPT": tied_gpt,
    "encoder and decoder, low-rank updates": encoder_decoder(64, torch.float32),
    "the same in half precision": encoder_decoder(64, torch.bfloat16),
    "LSTM": NETWORKS["lstm"],
    "in place": NETWORKS["in-place"],
    "gradients accumulated": LOOPS["gradient-accumulation"],
    **{f"{name} of transformers": trained(partial(make, 48)) for name, make in LANGUAGE.items() if "eager" in name},
    **{f"{name} of transformers": trained(partial(make, 64)) for name, make in LANGUAGE.items() if "sdpa" in name},
}

SLOWER = {"GPT that recomputes", "gradients accumulated", "GPT2 sdpa of transformers", "Llama eager of transformers"}
"""Looked at by `make soak`: others of their kind are looked at every time."""


@pytest.fixture(autouse=True)
def with_bytes_again() -> Iterator[None]:
    """Whatever a test did, the next one has bytes."""
    reason = why_missing("runtime._sim")
    if reason is not None:
        pytest.skip(reason)
    threads = torch.get_num_threads()
    torch.set_num_threads(int(about_rules()["threads"]))
    yield
    torch.set_num_threads(threads)
    gc.collect()
    use_sim()


def profiled(build: Build, *, shapes_only: bool) -> tuple[OpGraph, SimDevice]:
    gc.collect()
    sim = use_sim(shapes_only=shapes_only)
    trained = build(sim.device)
    return profile_step(trained.step, sim.device, model=trained.model, optimizer=trained.optimizer, warmup=1), sim


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.soak if name in SLOWER else ()) for name in MODELS]
)
def test_the_graph_is_that_of_the_step_with_bytes(name: str) -> None:
    """All but where it comes from; memory during every operator is the same, so that the peak is, too."""
    if "transformers" in name:
        pytest.importorskip("transformers")
    real, _ = profiled(MODELS[name], shapes_only=False)
    seen, sim = profiled(MODELS[name], shapes_only=True)
    assert seen.source.startswith(f"{SIM_SHAPES}: one step profiled on sim:0")
    assert seen.ops == real.ops and seen.tensors == real.tensors
    assert sim.unmeasured_temporaries() == {}
    if torch.backends.cpu.get_cpu_capability() != about_rules()["cpu_capability"]:
        pytest.skip("the table of temporaries was measured with kernels of another CPU")
    assert max(seen.memory_bytes) == max(real.memory_bytes)
    assert msgspec.structs.replace(seen, source=real.source) == real
