"""PyTorch's samples give the CPU's bits on sim, or are refused by a sentence that is known here."""

import re
import warnings

import pytest
import torch

from runtime.device import SimDevice
from tests.csrc.sim.opinfo.report import document, page
from tests.csrc.sim.opinfo.sweep import MODULES, WAYS, WRONG, Plan, Tally, programs, sweep

REFUSALS = {
    r"NotImplementedError: Could not run 'aten::\w+' with arguments from the 'SparseCs[rc]sim' backend\..*": {
        "sparse.sampled_addmm",
        "sparse.mm.reduce",
    },
    r"RuntimeError: tensor_split expected tensor_indices_or_sections to be on cpu, but it's on sim:N": {"tensor_split"},
}
"""What sim refuses and the CPU does not, and the operators of which this may be true: compressed sparse tensors, which
sim has not, and an operator that wants its indices on the host of every device."""

SHARDS = 4


def accept(tally: Tally) -> None:
    """Fails where something differs, or is refused otherwise than known."""
    assert tally.different == {}
    for sentence, operators in tally.refused.items():
        known = [named for pattern, named in REFUSALS.items() if re.fullmatch(pattern, sentence)]
        assert known and operators.keys() <= known[0], f"{sentence}: {dict(operators)}"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("shard", range(SHARDS))
def test_the_first_sample_of_every_operator_and_module(sim: SimDevice, shard: int) -> None:
    tally = sweep(programs(Plan(shard=(shard, SHARDS))))
    accept(tally)
    assert len(tally.operators) >= 190 and sum(tally.equal.values()) >= 300
    assert tally.equal["forward"] >= 160 and tally.equal["backward"] >= 120
    assert tally.equal["module in training"] >= 15


@pytest.mark.filterwarnings("ignore")
def test_every_way_of_calling_some_operators(sim: SimDevice) -> None:
    """Forward mode has zeros without memory, second order nodes of two threads, `out` memory that grows."""
    chosen = "^(add|addmm|cat|cumsum|dist|index_put|linalg.solve|nn.functional.(batch_norm|linear)|pow|sort|svd)$"
    tally = sweep(programs(Plan(operators=chosen, samples=2, ways=frozenset((*WAYS, WRONG)))))
    accept(tally)
    assert all(tally.equal[way] >= 4 for way in WAYS) and tally.refused_by_both[WRONG] >= 2


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("shard", range(SHARDS))
def test_more_samples_of_every_type_in_every_way(sim: SimDevice, shard: int) -> None:
    names = "float32 float64 bfloat16 float16 int64 uint8 bool complex64"
    dtypes = tuple(getattr(torch, name) for name in names.split())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tally = sweep(programs(Plan(dtypes, 4, frozenset((*WAYS, MODULES, WRONG)), shard=(shard, SHARDS))))
    accept(tally)
    assert sum(tally.equal.values()) >= 8_000


def test_the_page_says_what_was_found(sim: SimDevice) -> None:
    found = document(sweep(programs(Plan(operators="^(neg|nn.ReLU)$"))), {"command": "this test"})
    assert found["operators"] == 2 and found["different"] == {}
    told = page(found)
    assert "| command | this test |" in told and "| operators | 2 |" in told
    assert "| forward | 1 | 1 | 0 | 0 |" in told and "**Different: 0.**" in told
