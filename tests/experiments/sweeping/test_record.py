"""What a sweep's folder says, and what of it another sweep may overwrite."""

from pathlib import Path

import pytest

from experiments.grid import Cell
from experiments.pipeline.settings import ComposedPipeline, read_pipeline_settings
from experiments.run_directory import CONFIG, RunDirectory
from experiments.sweeping.record import keep_record, recorded, remove_foreign, require_same_sweep
from solvers.ir import InvalidInput


def cells(folder: Path, *microbatches: int) -> list[Cell[ComposedPipeline]]:
    words = [("experiment=lynx", f"microbatch={number}") for number in microbatches]
    return [
        Cell(one, read_pipeline_settings(one), {}, RunDirectory(folder / "cells" / one[1])) for one in words
    ]  # fmt: skip


def kept(folder: Path, *microbatches: int) -> list[Cell[ComposedPipeline]]:
    """Cells that have begun, and the sweep's record of them."""
    found = cells(folder, *microbatches)
    for cell in found:
        cell.begin()
    keep_record(RunDirectory(folder), "pipeline", ["a=1,2"], found)
    return found


def test_more_cells_are_the_same_sweep_and_fewer_or_others_are_not(tmp_path: Path) -> None:
    kept(tmp_path, 1, 2)
    require_same_sweep(tmp_path, "pipeline", [], cells(tmp_path, 2, 1, 3))
    with pytest.raises(InvalidInput, match=r"1 missing or with other settings, as cells/microbatch=2\): choose"):
        require_same_sweep(tmp_path, "pipeline", [], cells(tmp_path, 1, 3))
    (tmp_path / "cells" / "microbatch=2" / CONFIG).write_text("microbatch: 5\n")
    with pytest.raises(InvalidInput, match="overwrite it by force=true"):
        require_same_sweep(tmp_path, "pipeline", [], cells(tmp_path, 1, 2))
    with pytest.raises(InvalidInput, match="of another kind"):
        require_same_sweep(tmp_path, "cluster", [], cells(tmp_path, 1, 2))


def test_a_sweeper_that_chooses_on_its_way_needs_the_same_arguments(tmp_path: Path) -> None:
    kept(tmp_path, 1)
    require_same_sweep(tmp_path, "pipeline", ["a=1,2"], None)
    with pytest.raises(InvalidInput, match="other arguments"):
        require_same_sweep(tmp_path, "pipeline", ["a=1,3"], None)


def test_force_removes_the_other_cells_and_nothing_beside_them(tmp_path: Path) -> None:
    kept(tmp_path / "run", 1, 2)
    (tmp_path / "run" / "mine.txt").write_text("mine")
    remove_foreign(tmp_path / "run", cells(tmp_path / "run", 2))
    assert sorted(path.name for path in (tmp_path / "run").rglob("*") if path.is_file()) == [
        CONFIG, "mine.txt", "sweep.json",
    ]  # fmt: skip


def test_a_record_that_names_places_outside_removes_nothing_there(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / CONFIG).write_text("microbatch: 5\n")
    (tmp_path / "run").mkdir()
    text = '{"format": "bayplan-sweep/1", "kind": "pipeline", "arguments": [], "cells": ["../other", "."]}'
    (tmp_path / "run" / "sweep.json").write_text(text)
    remove_foreign(tmp_path / "run", cells(tmp_path / "run", 1))
    assert (tmp_path / "other" / CONFIG).exists() and (tmp_path / "run" / "sweep.json").exists()


def test_a_damaged_record_leaves_each_cell_to_speak_for_itself(tmp_path: Path) -> None:
    kept(tmp_path, 1)
    (tmp_path / "sweep.json").write_text("")
    assert recorded(tmp_path) is None
    require_same_sweep(tmp_path, "pipeline", [], cells(tmp_path, 3))
