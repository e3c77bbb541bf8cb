"""The throughput figures: labels, series and outcomes as the entries of `conf/table` ask for them."""

from pathlib import Path

import pytest

from experiments.hardware import read_hardware
from experiments.lynx.outcomes import quotient
from experiments.lynx.throughput import figure_9, figure_15, figure_16a, figure_16b, sequence_parallelism
from experiments.reproduction import OUT_OF_MEMORY, Cells
from solvers.partition.pipeline import machine_split


@pytest.fixture
def cells(tmp_path: Path) -> Cells:
    clusters = ("lynx-nvlink", "lynx-pcie", "lynx-ascend")
    return Cells(tmp_path, hardware_names=clusters, model_names=("gpt-1.3b", "gpt-23b"))


def test_machines_give_the_split() -> None:
    splits = [machine_split(read_hardware(name)) for name in ("lynx-nvlink", "lynx-pcie", "lynx-ascend")]
    assert [(one["tensor"], one["pipeline"]) for one in splits] == [(4, 4), (2, 4), (8, 4)]


def test_figure_9_shows_what_does_not_fit(cells: Cells) -> None:
    result = figure_9(
        cells, clusters=["lynx-pcie"], models=["gpt-1.3b", "gpt-23b"], microbatch_sizes=[8], microbatches=8
    )
    assert result.named("lynx").points["lynx-pcie gpt-23b mbs 8"] == OUT_OF_MEMORY
    numbers = {name: result.named(name).numbers() for name in ("full", "selective", "adapipe", "lynx")}
    (full,), (lynx,) = numbers["full"].values(), numbers["lynx"].values()
    assert full < lynx
    assert result.named("lynx over full").numbers() == {"lynx-pcie gpt-1.3b mbs 8": lynx / full}
    for name in ("adapipe", "lynx"):
        ((label, room),) = result.named(f"best possible over {name}").numbers().items()
        assert 1 <= room < 1.1
        assert room * numbers[name][label] >= lynx
    assert "hardware lynx-pcie" in result.notes[0]
    assert "gpt-23b mbs 8: out of memory with full, selective, adapipe, lynx" in result.notes[1]


def test_states_alone_exceed_the_pcie_cluster(cells: Cells) -> None:
    """Sixteen bytes for each of 23e9 parameters are more than the memory of all eight devices (Figure 9b has 23B)."""
    machine, shape = cells.hardware("lynx-pcie"), cells.shape("gpt-23b")
    assert 16 * shape.parameters() > sum(device.memory_bytes for device in machine.devices if device.name != "host")


def test_figure_15_stands_beside_another_cluster(cells: Cells) -> None:
    result = figure_15(
        cells,
        cluster="lynx-ascend",
        models=["gpt-1.3b"],
        splits=[{"tensor": 8, "pipeline": 2}],
        microbatch_size=8,
        microbatches=8,
        beside="lynx-nvlink",
    )
    assert list(result.named("lynx over full").numbers()) == ["gpt-1.3b tp 8 pp 2"]
    assert list(result.named("nvlink lynx over full").numbers()) == ["gpt-1.3b tp 4 pp 4"]


def test_figures_16_vary_one_thing(cells: Cells) -> None:
    splits = [{"tensor": 2, "pipeline": 4}, {"tensor": 4, "pipeline": 2}]
    same = {"cluster": "lynx-nvlink", "model": "gpt-1.3b", "microbatch_size": 8, "microbatches": 8}
    result = figure_16a(cells, splits=splits, **same)  # type: ignore[arg-type]
    each = result.named("lynx over each baseline").points
    assert list(each)[:2] == ["full tp 2 pp 4", "full tp 4 pp 2"] and len(each) == 6
    assert each["full tp 2 pp 4"] == result.named("lynx over full").points["tp 2 pp 4"]
    lengths = figure_16b(cells, sequences=[512, 1024], tensor=4, pipeline=4, **same)  # type: ignore[arg-type]
    short, long = lengths.named("lynx").numbers().values()
    assert short > 1.9 * long


def test_sequence_parallelism_gains(cells: Cells) -> None:
    result = sequence_parallelism(
        cells, cluster="lynx-nvlink", models=["gpt-1.3b"], microbatch_sizes=[8], microbatches=8
    )
    ((label, gain),) = result.named("gain of sequence parallelism").numbers().items()
    with_it, without = result.named("with it lynx").numbers()[label], result.named("lynx").numbers()[label]
    assert gain == pytest.approx(100 * (with_it / without - 1)) and gain > 0


def test_cells_are_stored_and_read_back(cells: Cells) -> None:
    def first() -> list[dict[str, object]]:
        result = figure_9(cells, clusters=["lynx-nvlink"], models=["gpt-1.3b"], microbatch_sizes=[8], microbatches=4)
        return [dict(one.points) for one in result.series]

    assert first() == first()
    assert [cell.stored for cell in cells.done] == [False, True]


def test_outcomes_pass_through_ratios() -> None:
    assert quotient(3.0, 2.0) == 1.5
    assert quotient(OUT_OF_MEMORY, 2.0) == OUT_OF_MEMORY
    assert quotient(1.0, None) is None
