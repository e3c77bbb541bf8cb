"""Figures 10 to 13: parts add up, reductions and shares follow from the times beside them."""

from pathlib import Path

import pytest

from experiments.lynx.breakdown import figure_10a, figure_10b, figure_11, figure_12, figure_13
from experiments.reproduction import OUT_OF_MEMORY, Cells

GRID = {"cluster": "lynx-nvlink", "models": ["gpt-13b", "gpt-23b"], "microbatches": 16}


@pytest.fixture
def cells(tmp_path: Path) -> Cells:
    return Cells(tmp_path, hardware_names=("lynx-nvlink",), model_names=("gpt-13b", "gpt-23b"))


def test_reductions_follow_from_the_times(cells: Cells) -> None:
    result = figure_10a(cells, microbatch_sizes=[16, 32], **GRID)  # type: ignore[arg-type]
    label = "gpt-13b mbs 16"
    full, adapipe, lynx = (result.named(name).numbers()[label] for name in ("full", "adapipe", "lynx"))
    assert 0 < lynx < adapipe < full
    assert result.named("reduction against full").points[label] == pytest.approx(100 * (1 - lynx / full))
    assert result.named("reduction against adapipe").points[label] == pytest.approx(100 * (1 - lynx / adapipe))
    assert result.named("selective").points[label] == OUT_OF_MEMORY
    assert result.named("reduction against full").points["gpt-23b mbs 32"] == OUT_OF_MEMORY


def test_the_parts_of_a_stage_add_up(cells: Cells) -> None:
    result = figure_10b(cells, microbatch_size=32, **GRID)  # type: ignore[arg-type]
    parts = [result.named(name).numbers() for name in ("on demand", "overlapping", "not recomputed")]
    labels = [f"gpt-13b stage {stage}" for stage in range(4)]
    assert list(parts[0]) == labels
    for label in labels:
        assert sum(part[label] for part in parts) == pytest.approx(100)
    removed = result.named("overhead removed").points
    assert [removed[label] for label in labels] == pytest.approx([100 - parts[0][label] for label in labels])
    assert removed["gpt-23b stage 0"] == OUT_OF_MEMORY


def test_no_partition_beats_the_fastest(cells: Cells) -> None:
    result = figure_11(cells, microbatch_sizes=[32], **GRID)  # type: ignore[arg-type]
    ours, dp, fastest = (result.named(f"{name} over balanced").numbers() for name in ("partition", "dp", "fastest"))
    assert list(ours) == ["gpt-13b mbs 32"]
    assert 1 < ours["gpt-13b mbs 32"] <= fastest["gpt-13b mbs 32"]
    assert dp["gpt-13b mbs 32"] <= fastest["gpt-13b mbs 32"]
    assert any("gpt-13b mbs 32: full 10-10-10-10, recomputation 10-10-10-10, all " in note for note in result.notes)


def test_bubbles_removed_follow_from_the_bubbles(cells: Cells) -> None:
    result = figure_12(cells, cluster="lynx-nvlink", model="gpt-23b", microbatch_size=16, microbatches=16)
    idle = result.named("bubbles").numbers()
    assert result.named("bubbles removed").points == {
        "gpt-23b mbs 16": pytest.approx(100 * (1 - idle["all"] / idle["recomputation"]))
    }


def test_shares_divide_the_gain(cells: Cells) -> None:
    result = figure_13(cells, microbatch_sizes=[32], **GRID)  # type: ignore[arg-type]
    label = "gpt-13b mbs 32"
    alone, both = (result.named(f"{name} over full").numbers()[label] for name in ("recomputation", "all"))
    assert 1 < alone < both
    first, second = (result.named(f"share of {name}").numbers()[label] for name in ("recomputation", "partition"))
    assert first == pytest.approx(100 * (alone - 1) / (both - 1))
    assert first + second == pytest.approx(100)
