"""Figure 3 and what full recomputation wastes, against the formulas of the workload room."""

from pathlib import Path

import pytest

from experiments.lynx.opportunities import figure_3a, figure_3b, full_recomputation
from experiments.reproduction import Cells
from solvers.workload import Parallelism, all_reduce_us, megatron_layer, tensor_group


@pytest.fixture
def cells(tmp_path: Path) -> Cells:
    return Cells(tmp_path, hardware_names=("lynx-nvlink", "lynx-pcie"), model_names=("gpt-7b",))


def test_communication_is_four_all_reduces_a_layer(cells: Cells) -> None:
    result = figure_3a(
        cells,
        model="gpt-7b",
        clusters=["lynx-nvlink", "lynx-pcie"],
        tensors=[2, 4],
        pipeline=4,
        microbatch_sizes=[8],
        microbatches=8,
    )
    share = result.named("communication share").numbers()
    assert list(share) == [f"{cluster} mbs 8 tp {t}" for cluster in ("lynx-nvlink", "lynx-pcie") for t in (2, 4)]
    machine = cells.hardware("lynx-pcie")
    layer = megatron_layer(cells.shape("gpt-7b"), Parallelism(tensor=2, pipeline=4, microbatch=8), machine)
    one = all_reduce_us(machine, tensor_group(machine, 2), 2 * 8 * 1024 * 4096)
    assert share["lynx-pcie mbs 8 tp 2"] == pytest.approx(100 * 4 * one / (layer.forward_us + layer.backward_us), 1e-3)
    assert share["lynx-pcie mbs 8 tp 2"] > share["lynx-nvlink mbs 8 tp 2"]
    steps = result.named("step time").numbers()
    assert steps["lynx-nvlink mbs 8 tp 4"] < steps["lynx-nvlink mbs 8 tp 2"]


def test_memory_by_stage(cells: Cells) -> None:
    result = figure_3b(
        cells, model="gpt-7b", cluster="lynx-nvlink", tensor=2, pipeline=4, microbatch_sizes=[8, 32], microbatches=16
    )
    over = result.named("memory over stage 0").numbers()
    assert over["mbs 8 stage 0"] == 1.0
    spread = result.named("highest over lowest").numbers()
    for size in (8, 32):
        stages = [over[f"mbs {size} stage {stage}"] for stage in range(4)]
        assert spread[f"mbs {size}"] == pytest.approx(max(stages) / min(stages))
    assert list(result.named("copies").numbers().values()) == [4, 3, 2, 1]


def test_what_full_recomputation_wastes(cells: Cells) -> None:
    splits = [{"tensor": 4, "pipeline": 2}]
    result = full_recomputation(
        cells, model="gpt-7b", cluster="lynx-nvlink", microbatch_sizes=[1, 32], microbatches=16, splits=splits
    )
    wasted = result.named("released without need").numbers()
    cut = Parallelism(tensor=4, pipeline=2, microbatch=1)
    layer = megatron_layer(cells.shape("gpt-7b"), cut, cells.hardware("lynx-nvlink"))
    assert wasted["tp 4 pp 2 mbs 1 stage 1"] == 16 * (layer.kept_bytes - layer.input_bytes) / 1e9
    assert wasted["tp 4 pp 2 mbs 32 stage 0"] < 42.95
    (low, high) = result.named("share of recomputation").numbers().values()
    assert 20 < high < low < 30
