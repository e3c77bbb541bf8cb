"""PyTorch's shape functions against the CPU's kernels: type, sizes, strides, storage, time of results and gradients."""

import gc
import re

import pytest
import torch

from runtime.device import SimDevice, use_sim
from tests.csrc.sim.conftest import ROUND
from tests.csrc.sim.opinfo.programs import Program
from tests.csrc.sim.shapes.faces import looks, programs

SHARDS, QUICK = 6, (2,)
"""Parts of PyTorch's list of operators, and those that every run of the tests looks at; `make soak` looks at all."""
OTHERWISE = {
    "cumprod": "asks whether there are zeros",
    "fft.irfftn": "another order of dimensions in memory",
    "fft.rfftn": "another order of dimensions in memory",
    "huber_loss": "in half precision the CPU's gradient kernel reads less",
    "linalg.eig": "the CPU's vectors are column by column",
    "linalg.vander": "asks whether there are zeros",
    "masked.cumprod": "asks whether there are zeros",
    "max.reduction_no_dim": "asks whether the maximum is NaN",
    "median": "asks whether the median is NaN",
    "min.reduction_no_dim": "asks whether the minimum is NaN",
    "nanmedian": "asks whether the median is NaN",
    "nonzero_static": "no strides of an empty result",
    "one_hot": "asks for the largest number",
    "pca_lowrank": "asks which side is longer in memory",
    "prod": "asks how many zeros there are",
    "smooth_l1_loss": "in half precision the CPU's gradient kernel reads less",
    "svd_lowrank": "asks which side is longer in memory",
    "tensordot": "in half precision the order of dimensions in memory",
}
"""Operators of which results look otherwise, or kernels differ, and why; every other one is equal or refused."""
REFUSALS = "|".join(
    (
        r"RuntimeError: the (size of what the )?operator \w+ .*leave shapes_only out.*",
        r"RuntimeError: .*(linalg.lu_factor: U|linalg.ldl_factor: Unknown error code).*",
        r"ValueError: var has negative entry/entries",
    )
)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "shard", [pytest.param(shard, marks=() if shard in QUICK else pytest.mark.soak) for shard in range(SHARDS)]
)
def test_the_first_sample_of_every_operator(sim: SimDevice, shard: int) -> None:
    equal, refused = compare(sim, list(programs((shard, SHARDS))))
    assert equal >= 190 and refused <= 20


@pytest.mark.filterwarnings("ignore")
def test_norms_products_and_activations_in_half_precision(sim: SimDevice) -> None:
    """Shape functions have a norm's statistics in single precision, the CPU's kernels in that of the input."""
    chosen = "norm$|linear$|bmm$|softmax$|gelu$|silu$|attention|embedding$|cross_entropy|conv2d"
    equal, refused = compare(sim, list(programs((0, 1), torch.bfloat16, chosen=chosen)))
    assert equal >= 60 and refused == 0


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.bool])
def test_more_samples_of_other_types(sim: SimDevice, dtype: torch.dtype) -> None:
    equal, _ = compare(sim, list(programs((0, 1), dtype, samples=3)))
    assert equal >= 500


def compare(sim: SimDevice, chosen: list[Program]) -> tuple[int, int]:
    """How many programs look the same with bytes and with shapes only, and how many shapes refuse; fails for others."""
    real = looks(sim, chosen)
    seen = looks(use_sim(ROUND, shapes_only=True), chosen)
    gc.collect()
    use_sim(ROUND)
    equal, refused, different = 0, [], []
    for program, wanted, found in zip(chosen, real, seen, strict=True):
        if isinstance(wanted, str):
            continue
        if isinstance(found, str):
            refused.append(found)
        elif wanted == found:
            equal += 1
        elif program.operator.removeprefix("nn.functional.") not in OTHERWISE:
            different.append(str(program))
    assert different == []
    assert [sentence for sentence in refused if not re.fullmatch(REFUSALS, sentence)] == []
    return equal, len(refused)
