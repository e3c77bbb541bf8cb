"""What Lynx says about memory, held against our shapes; where it does not come out, by how much."""

import pytest

from experiments.hardware import read_hardware
from experiments.shapes import read_shape
from experiments.stages import Stage
from solvers.workload import Parallelism, stage_extras, static_bytes

GB, GIB = 10**9, 2**30
NODE_OF_EIGHT = read_hardware("lynx-ascend")  # memory does not depend on the links; this file has nodes of eight


def activations(microbatch: int) -> int:
    """Activations of GPT-4.7B at TP 8: layers, embedding and head of one microbatch."""
    stage = Stage(read_shape("gpt-4.7b"), Parallelism(tensor=8, microbatch=microbatch), NODE_OF_EIGHT)
    return stage.unlimited_bytes - static_bytes(stage.shape, stage.parallelism, 0, stage.layers)


@pytest.mark.parametrize("name", ["gpt-1.3b", "gpt-175b", "llama-2-70b", "mixtral-8x7b"])
def test_a_model_needs_sixteen_bytes_per_parameter(name: str) -> None:
    """§2.1: 2n parameters, 2n gradients, 12n optimizer data."""
    shape = read_shape(name)
    assert static_bytes(shape, Parallelism(microbatch=1), 0, shape.layers) == 16 * shape.parameters()


def test_states_of_the_4_7b_model_at_tp_8() -> None:
    """§2.1 says 8 GB, which 16 bytes a parameter do not give: 16·4.7e9/8 is 9.4 GB or 8.75 GiB.

    So the paper's figure is 15 % (in GiB 9 %) below its own arithmetic; 14 bytes a parameter would give 8.2 GB. Our
    assumed shape has 5.05e9 parameters, hence 10.2 GB (9.5 GiB), 27 % (18 %) above what is printed.
    """
    printed = 8
    by_arithmetic = 16 * 4_700_000_000 / 8
    assert by_arithmetic / GB == pytest.approx(9.4)
    assert printed * GB / by_arithmetic == pytest.approx(0.85, abs=0.01)
    assert printed * GIB / by_arithmetic == pytest.approx(0.914, abs=0.01)
    ours = static_bytes(read_shape("gpt-4.7b"), Parallelism(tensor=8, microbatch=4), 0, 24)
    assert ours / GB == pytest.approx(10.2, abs=0.05)
    assert ours / (printed * GB) == pytest.approx(1.27, abs=0.01)
    assert ours / (printed * GIB) == pytest.approx(1.18, abs=0.01)


def test_activations_of_the_4_7b_model_at_tp_8_and_batch_4() -> None:
    """§2.1 says 7.6 GB; our shape gives 7.44 GB, within 3 %."""
    assert activations(4) / GB == pytest.approx(7.6, rel=0.03)


def test_twice_the_batch_needs_45_percent_more_memory() -> None:
    """§2.1: from batch 4 to 8 by 45 %; our shape, with its larger states, by 42 %."""
    states = static_bytes(read_shape("gpt-4.7b"), Parallelism(tensor=8, microbatch=4), 0, 24)
    growth = (states + activations(8)) / (states + activations(4)) - 1
    assert growth == pytest.approx(0.45, abs=0.04)


@pytest.mark.parametrize(("tensor", "pipeline"), [(8, 1), (4, 2), (2, 4), (1, 8)])
def test_the_7b_model_at_batch_32_does_not_fit_eight_a100(tensor: int, pipeline: int) -> None:
    """§1: out of memory on eight A100 of 40 GB despite tensor and pipeline parallelism, however these are chosen."""
    parallelism = Parallelism(tensor=tensor, pipeline=pipeline, microbatch=32, microbatches=pipeline)
    first = Stage(read_shape("gpt-7b"), parallelism, NODE_OF_EIGHT)
    assert first.unlimited_bytes > read_hardware("a100-sxm-40").device().memory_bytes


def test_early_stages_need_half_as_much_again() -> None:
    """§2.3, Figure 3(b): the fullest stage takes up to 1.5 times the emptiest (7B, TP 2, PP 4).

    The paper does not say what its runs recomputed. With nothing recomputed ours take 1.3 times at micro batch 1, 1.5
    at 2 and 1.8 at 4, beyond which the first stage does not fit 40 GB: the same effect, at the upper end larger.
    """
    ratios = {}
    for microbatch in (1, 2, 4, 8):
        parallelism = Parallelism(tensor=2, pipeline=4, microbatch=microbatch, microbatches=8)
        memory = [Stage(read_shape("gpt-7b"), parallelism, NODE_OF_EIGHT, index).unlimited_bytes for index in range(4)]
        assert max(memory) == memory[0]
        ratios[microbatch] = memory[0] / min(memory)
        assert (memory[0] > read_hardware("a100-sxm-40").device().memory_bytes) == (microbatch == 8)
    assert [round(ratios[microbatch], 1) for microbatch in (1, 2, 4)] == [1.3, 1.5, 1.8]


@pytest.mark.parametrize("tensor", [1, 2, 8])
@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_the_head_keeps_what_korthikanti_counts(tensor: int, sequence_parallel: bool) -> None:
    """§4.3 there: 4sbh/t·(1 + v/h) with sequence parallelism; without, the norm's two tensors are whole."""
    shape = read_shape("gpt-1.3b")
    parallelism = Parallelism(tensor=tensor, microbatch=3, sequence_parallel=sequence_parallel)
    extras = {extra.name: extra for extra in stage_extras(shape, parallelism, NODE_OF_EIGHT, 0)}
    tokens, part = 3 * shape.sequence, tensor if sequence_parallel else 1
    assert extras["head"].activation_bytes == 4 * tokens * shape.hidden // part + 4 * tokens * shape.vocab // tensor
    assert extras["embedding"].activation_bytes == tokens * shape.hidden // part
