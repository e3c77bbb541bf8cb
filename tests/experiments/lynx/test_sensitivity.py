"""One constant at a time: what is scaled is scaled, everything else stays; and what partitions lose."""

from pathlib import Path

import pytest

from experiments.hardware import read_hardware
from experiments.lynx.partitions import partitions
from experiments.lynx.sensitivity import most_hidden, scaled, sensitivity
from experiments.reproduction import OUT_OF_MEMORY, Cells


@pytest.fixture
def cells(tmp_path: Path) -> Cells:
    return Cells(tmp_path, hardware_names=("lynx-nvlink",), model_names=("gpt-7b", "gpt-1.3b", "gpt-23b"))


def test_one_constant_is_scaled() -> None:
    machine = read_hardware("lynx-nvlink")
    slow, small = scaled(machine, "collectives", 0.5), scaled(machine, "memory", 0.5)
    device = machine.device()
    assert slow.device().efficiency == {**device.efficiency, "collective": device.efficiency["collective"] / 2}
    assert slow.device().memory_bytes == device.memory_bytes == 2 * small.device().memory_bytes
    assert small.device().efficiency == device.efficiency
    assert scaled(machine, "memory", 1.0) == scaled(machine, "microbatches", 4.0) == machine


def test_slower_collectives_hide_more(cells: Cells) -> None:
    result = sensitivity(
        cells,
        cluster="lynx-nvlink",
        model="gpt-7b",
        microbatch_size=32,
        microbatches=8,
        varied={"collectives": [0.33], "memory": [0.8], "microbatches": [2]},
    )
    hidden = result.named("overlapping, largest of a stage").points
    assert list(hidden) == ["as assumed", "collectives 0.33", "memory 0.8", "microbatches 2"]
    assert 0 < float(hidden["as assumed"] or 0) < float(hidden["collectives 0.33"] or 0)
    removed = result.named("overhead removed from stage 0").numbers()
    assert removed["memory 0.8"] < removed["as assumed"] < removed["collectives 0.33"]
    assert all(value > 1 for value in result.named("lynx over full").numbers().values())


def test_what_is_hidden_is_of_the_forward_time() -> None:
    figures = {"window_hidden_us": [2, 0], "stall_hidden_us": [1, 0], "critical_us": [3, 9], "kept_us": [4, 1]}
    assert most_hidden(figures) == 30.0


def test_the_fastest_partition_loses_nothing(cells: Cells) -> None:
    result = partitions(
        cells,
        cluster="lynx-nvlink",
        models=["gpt-1.3b", "gpt-23b"],
        splits=[{"tensor": 2, "pipeline": 8}],
        microbatch_sizes=[32],
        microbatches=[8],
    )
    label = "gpt-1.3b tp 2 pp 8 mbs 32 of 8"
    dp, balanced = (result.named(f"{cut} over fastest").numbers()[label] for cut in ("dp", "balanced"))
    assert 0 < dp < balanced
    assert result.named("gap of the fastest").points == {
        label: 0.0,
        "gpt-23b tp 2 pp 8 mbs 32 of 8": OUT_OF_MEMORY,
    }
