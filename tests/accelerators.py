"""The accelerators that tests of the runtime run on: the simulated one here, CUDA where there is one."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from runtime.device import accelerator, use_sim
from runtime.device.native import why_missing

ON_EACH = pytest.mark.parametrize("device", ["sim", pytest.param("cuda", marks=pytest.mark.gpu)], indirect=True)

ON_EACH_AT_LENGTH = pytest.mark.parametrize(
    "device",
    [pytest.param("sim", marks=pytest.mark.soak), pytest.param("cuda", marks=pytest.mark.gpu)],
    indirect=True,
)
"""The same for tests whose like runs on sim already: there they show that what CUDA is given works."""


def prepare_sim() -> str | None:
    """Registers the simulated accelerator, which must precede the first backward pass; the reason if it cannot be.

    A process has one accelerator, so a machine with CUDA runs the tests marked `gpu` and skips those on sim.
    """
    if torch.cuda.is_available():
        return "this process has CUDA, and PyTorch serves one kind of accelerator only"
    missing = why_missing("runtime._sim")
    if missing is None:
        use_sim()
    return missing


def prepared(name: str) -> torch.device:
    """The device of that name, reset; skips the test where it is not there."""
    if name == "cuda":
        if not torch.cuda.is_available():
            pytest.skip("there is no CUDA device")
        return accelerator("cuda")
    reason = prepare_sim()
    if reason is not None:
        pytest.skip(reason)
    return use_sim(races="raise").device


@contextmanager
def repeatable() -> Iterator[None]:
    """On CUDA two runs agree inside: kernels are deterministic, and attention is made of matrix products.

    Fused attention adds its gradients up in any order. `make gpu` sets what cuBLAS wants before Python begins.
    """
    with ExitStack() as stack:
        if torch.cuda.is_available():
            stack.enter_context(sdpa_kernel(SDPBackend.MATH))
            torch.use_deterministic_algorithms(True, warn_only=True)
            stack.callback(torch.use_deterministic_algorithms, False)
        yield
