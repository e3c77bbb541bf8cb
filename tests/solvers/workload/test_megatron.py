"""The layer: the bytes it keeps equal the closed formula, its operators make sense, its time adds up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.hardware import read_hardware
from experiments.shapes import read_shape, shape_names
from solvers.ir import Device, Hardware, InvalidProblem, Link
from solvers.workload import ModelShape, Parallelism, megatron_layer

DEVICES = [f"n0.d{number}" for number in range(8)]
MESH = Hardware(
    name="mesh",
    devices=tuple(
        Device(name=name, memory_bytes=1 << 35, flops_per_s={"float16": 10**14}, bytes_per_s=10**12, launch_us=2.0)
        for name in DEVICES
    ),
    links=tuple(Link(a=a, b=b, bytes_per_s=10**11, latency_us=1.0) for a in DEVICES for b in DEVICES if a < b),
)


def gpt(heads: int, width: int, sequence: int, **fields: object) -> ModelShape:
    hidden = heads * width
    sizes = {"hidden": hidden, "heads": heads, "kv_heads": heads, "ffn": 4 * hidden, "sequence": sequence}
    return ModelShape(name="g", layers=2, vocab=512, **{**sizes, **fields})  # type: ignore[arg-type]


@given(
    tensor=st.sampled_from([1, 2, 4, 8]),
    heads=st.sampled_from([8, 16, 40]),
    width=st.sampled_from([16, 64, 128]),
    sequence=st.sampled_from([64, 512, 2048]),
    batch=st.integers(1, 9),
    group_small=st.booleans(),
)
def test_kept_bytes_are_those_of_the_closed_formula(
    tensor: int, heads: int, width: int, sequence: int, batch: int, group_small: bool
) -> None:
    """Korthikanti et al. 2022, eqs. (2) and (4): sbh(10 + 24/t + 5as/(ht)), and sbh/t·(34 + 5as/h) along it."""
    shape, sbh, scores = gpt(heads, width, sequence), sequence * batch * heads * width, 5 * heads * sequence**2 * batch
    plain = Parallelism(tensor=tensor, microbatch=batch)
    layer = megatron_layer(shape, plain, MESH, group_small=group_small)
    assert layer.kept_bytes * tensor == sbh * (10 * tensor + 24) + scores
    along = Parallelism(tensor=tensor, microbatch=batch, sequence_parallel=True)
    layer = megatron_layer(shape, along, MESH, group_small=group_small)
    assert layer.kept_bytes * tensor == 34 * sbh + scores


def test_grouped_gpt_layer_has_thirty_operators_and_four_all_reduces() -> None:
    layer = megatron_layer(
        read_shape("gpt-7b"), Parallelism(tensor=4, pipeline=4, microbatch=8), read_hardware("lynx-nvlink")
    )
    assert (len(layer.forward), len(layer.backward)) == (16, 14)
    assert [op.name for op in layer.forward if op.comm] == ["all-reduce 1", "all-reduce 2"]
    assert [op.name for op in layer.backward if op.comm] == ["all-reduce gradient 2", "all-reduce gradient 1"]
    unneeded = [op.name for op, needed in zip(layer.forward, layer.needed, strict=True) if not needed]
    assert unneeded == ["scores", "projection", "all-reduce 1", "fc2", "all-reduce 2", "dropout add 2"]


@pytest.mark.parametrize("name", shape_names())
def test_every_shape_becomes_a_layer(name: str) -> None:
    shape = read_shape(name)
    for tensor in (1, 8):
        layer = megatron_layer(shape, Parallelism(tensor=tensor, microbatch=1), MESH)
        assert layer.forward[-1].output_bytes == layer.backward[-1].output_bytes == layer.input_bytes
        assert any(op.reads_gradient for op in layer.backward) and any(op.reads_input for op in layer.backward)
        assert layer.forward_us < layer.backward_us


def test_tensor_parallelism_that_does_not_divide_is_refused() -> None:
    with pytest.raises(InvalidProblem, match="tensor is 3, which does not divide the 8 heads"):
        megatron_layer(gpt(8, 16, 64), Parallelism(tensor=3, microbatch=1), MESH)
