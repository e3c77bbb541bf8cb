"""The README's example runs, and its tables say what the formulas give."""

import re
from pathlib import Path

import pytest

import solvers.workload
from experiments.hardware import read_hardware
from experiments.shapes import read_shape, shape_names
from experiments.stages import Stage
from solvers.ir import InvalidProblem
from solvers.workload import Parallelism, bus_bytes_per_s, megatron_layer, static_bytes, tensor_group

README = Path(solvers.workload.__file__).with_name("README.md").read_text(encoding="utf-8")


def test_the_example_runs() -> None:
    (block,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    exec(compile(block, "README.md", "exec"), {})


@pytest.mark.parametrize("name", [name for name in shape_names() if name.startswith("gpt-")])
def test_the_table_of_assumed_shapes(name: str) -> None:
    shape = read_shape(name)
    sizes = f"{shape.layers} × {shape.hidden}, {shape.heads}"
    assert f"| {name} | {sizes} | {shape.parameters() / 1e9:.3f}e9" in README
    share = shape.parameters() / (float(name.removeprefix("gpt-").rstrip("bm")) * (1e6 if name.endswith("m") else 1e9))
    (told,) = re.findall(rf"^\| {name} \|.*\| ([+−][\d.]+) % ", README, re.MULTILINE)
    assert float(told.replace("−", "-")) == pytest.approx(100 * (share - 1), abs=0.6)


def test_the_table_of_bus_bandwidths() -> None:
    rows = re.findall(
        r"^\| ((?:lynx|protrain|smartswap)-[\w-]+)[^|]* \| (.*) \| (.*) \| (.*) \|$", README, re.MULTILINE
    )
    assert len(rows) == 7
    for name, *cells in rows:
        machine = read_hardware(name)
        for tensor, cell in zip((2, 4, 8), cells, strict=True):
            if cell != "–":
                told = float(cell.split()[0])
                assert bus_bytes_per_s(machine, tensor_group(machine, tensor)) / 1e9 == pytest.approx(told, rel=0.01)
            elif name != "lynx-nvlink-8":
                with pytest.raises(InvalidProblem):
                    tensor_group(machine, tensor)


def test_the_utilization_that_the_assumed_efficiencies_lead_to() -> None:
    shape, cluster = read_shape("gpt-7b"), read_hardware("lynx-nvlink")
    layer = megatron_layer(shape, Parallelism(tensor=4, microbatch=8), cluster)
    work = sum(op.flops or 0 for op in layer.forward) + sum(op.flops or 0 for op in layer.backward)
    rate = work * 1e6 / (layer.forward_us + layer.backward_us)
    assert "computes 127 TFLOP/s a GPU, 41 % of the peak" in README
    assert round(rate / 1e12) == 127 and round(100 * rate / cluster.device("n0.d0").flops_per_s["float16"]) == 41
    apart = megatron_layer(shape, Parallelism(tensor=4, microbatch=8), cluster, group_small=False)
    assert f"leaves {len(apart.forward)} + {len(apart.backward)}." in README


def test_the_table_of_facts() -> None:
    stage = Stage(read_shape("gpt-4.7b"), Parallelism(tensor=8, microbatch=4), read_hardware("lynx-nvlink-8"))
    states = static_bytes(stage.shape, stage.parallelism, 0, stage.layers)
    assert f"| 4.7B at TP 8: 8 GB of states | {states / 1e9:.1f} GB |" in README
    assert f"| 7.6 GB of activations at batch 4 | {(stage.unlimited_bytes - states) / 1e9:.2f} GB |" in README
