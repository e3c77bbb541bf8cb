"""Time and work of operators: the roofline, cumulative rounding, a transformer's flops, groups of small kernels."""

import pytest

from experiments.hardware import read_hardware
from experiments.shapes import read_shape, shape_names
from solvers.ir import Device, InvalidProblem
from solvers.workload import Parallelism, megatron_layer
from solvers.workload.kernels import GRADIENT, INPUT, Kernel, assemble, roofline_us

DEVICE = Device(
    name="d",
    memory_bytes=1,
    flops_per_s={"float16": 10**12, "float32": 10**11},
    bytes_per_s=10**9,
    launch_us=3.0,
    efficiency={"matmul": 0.5, "other": 0.25},
)
CLUSTER = read_hardware("lynx-nvlink")


def test_the_roofline_takes_the_longer_of_arithmetic_and_traffic_and_at_least_a_launch() -> None:
    assert roofline_us(DEVICE, "matmul", 10**9, 10**5) == 2000
    assert roofline_us(DEVICE, "matmul", 10**7, 10**5) == 200
    assert roofline_us(DEVICE, "copy", 0, 10**5) == 400  # an unnamed class is `other`
    assert roofline_us(DEVICE, "matmul", 10, 10) == 3
    rateless = Device(name="r", memory_bytes=1, bytes_per_s=1)
    with pytest.raises(InvalidProblem, match="device 'r' gives no rate for any of float16, bfloat16, float32"):
        roofline_us(rateless, "matmul", 1, 0)


@pytest.mark.parametrize("group_small", [True, False])
def test_rounding_never_adds_up(group_small: bool) -> None:
    """Ten kernels of 3.4 µs take 34 µs, not 30."""
    forward = [Kernel(f"f{n}", (INPUT,), 1, comm_us=3.4) for n in range(10)]
    backward = [Kernel("b", (GRADIENT,), 1, comm_us=0.4)]
    costs = assemble("l", 1, (forward, backward), DEVICE, group_small)
    assert [op.time_us for op in costs.forward] == [3, 4, 3, 4, 3, 3, 4, 3, 4, 3]
    assert costs.forward_us == 34 and costs.backward_us == 0


def test_a_group_shows_only_what_others_read_of_it() -> None:
    forward = [
        Kernel("a", (INPUT,), 1, traffic=100_000, group="g"),
        Kernel("b", ("a",), 10, traffic=100_000, group="g"),
        Kernel("c", ("b",), 100, group="g"),
        Kernel("d", ("c", "b"), 1000),
    ]
    backward = [Kernel("e", (GRADIENT, "b"), 5)]
    costs = assemble("l", 7, (forward, backward), DEVICE, True)
    assert [(op.name, op.output_bytes, op.inputs) for op in costs.forward] == [("g", 110, ()), ("d", 1000, (0,))]
    assert [op.reads_input for op in costs.forward] == [True, False]
    assert costs.forward[0].time_us == 803 and costs.forward[0].bytes == 200_000
    assert costs.backward[0].forward_inputs == (0,)
    assert costs.needed == (True, False)
    apart = assemble("l", 7, (forward, backward), DEVICE, False)
    assert [op.output_bytes for op in apart.forward] == [1, 10, 100, 1000]
    assert apart.needed == (False, True, False, False)
    assert apart.forward_us == costs.forward_us


@pytest.mark.parametrize("tensor", [1, 2, 4])
@pytest.mark.parametrize("name", shape_names())
def test_the_operators_do_the_work_of_a_transformer(name: str, tensor: int) -> None:
    """Products with weights, and attention's two: 24bsh² + 4bs²h for a GPT forwards, twice that backwards.

    Narayanan et al. 2021, appendix; flash attention skips what is masked (half) and makes scores anew backwards (5/2).
    """
    shape = read_shape(name)
    layer = megatron_layer(shape, Parallelism(tensor=tensor, microbatch=2), CLUSTER)
    tokens = 2 * shape.sequence
    width = shape.qkv_width + shape.hidden + shape.experts_per_token * (shape.fc1_width + shape.ffn)
    weights = 2 * tokens * shape.hidden * width
    router = 2 * tokens * shape.hidden * shape.experts * tensor if shape.experts > 1 else 0
    attention = 4 * tokens * shape.sequence * shape.hidden
    flash = shape.attention == "flash"
    forward = weights + router + attention // (2 if flash else 1)
    backward = 2 * (weights + router) + attention * 5 // 4 if flash else 2 * (weights + router + attention)
    assert sum(op.flops or 0 for op in layer.forward) * tensor == forward
    assert sum(op.flops or 0 for op in layer.backward) * tensor == backward
    if name == "gpt-7b":
        assert forward == 24 * tokens * shape.hidden**2 + 4 * tokens * shape.sequence * shape.hidden


def test_grouping_changes_neither_time_nor_kept_bytes() -> None:
    for name in ("gpt-13b", "llama-2-70b", "mixtral-8x7b"):
        for sequence_parallel in (False, True):
            parallelism = Parallelism(tensor=4, microbatch=2, sequence_parallel=sequence_parallel)
            small = megatron_layer(read_shape(name), parallelism, CLUSTER)
            apart = megatron_layer(read_shape(name), parallelism, CLUSTER, group_small=False)
            assert small.kept_bytes == apart.kept_bytes
            assert (small.forward_us, small.backward_us) == (apart.forward_us, apart.backward_us)
            assert len(small.forward) < len(apart.forward) and len(small.backward) < len(apart.backward)
