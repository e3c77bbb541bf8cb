"""A grid of pipelines: infeasible and impossible cells are rows, and a second run computes nothing again."""

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from experiments.compare import main
from experiments.pipeline import compare
from experiments.pipeline.planned import Comparison, compare_systems
from experiments.rows import read_rows
from experiments.sweep import Sweep
from solvers.ir import InvalidInput
from solvers.partition.pipeline import Pipeline
from solvers.partition.policies import System
from tests.experiments.sweeping.words import OTHERS

WORDS = ["experiment=lynx_sweep", "-m", "cluster=lynx-nvlink", "shape=gpt-1.3b,gpt-23b", "microbatch=32"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sweep") / "run"
    assert main([*WORDS, "tensor=5,4", f"run_dir={path}"]) == 1  # two cells contradict themselves
    return path


def test_every_cell_has_its_rows(folder: Path) -> None:
    rows = read_rows(folder / "rows.jsonl")
    found = {(row.asked["shape"], row.asked["tensor"]): set[str]() for row in rows}
    for row in rows:
        found[row.asked["shape"], row.asked["tensor"]].add(row.outcome)
    assert found == {
        ("gpt-1.3b", 5): {"error"},
        ("gpt-1.3b", 4): {"ok"},
        ("gpt-23b", 5): {"error"},
        ("gpt-23b", 4): {"infeasible"},
    }
    fault = next(row for row in rows if row.outcome == "error")
    assert fault.reason == "tensor is 5, which does not divide the 32 heads of gpt-1.3b: choose a divisor"


def test_tables_and_picture(folder: Path) -> None:
    text = (folder / "table.txt").read_text()
    assert "Throughput (samples/s)" in text and "Gap to the best possible step" in text
    assert (folder / "throughput.svg").read_text().startswith("<?xml")


def test_a_second_run_goes_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = (folder / "rows.jsonl").read_text()
    asked: list[str] = []

    def counted(pipeline: Pipeline, systems: Mapping[str, System]) -> Comparison:
        asked.append(pipeline.shape.name)
        return compare_systems(pipeline, systems)

    monkeypatch.setattr(compare, "compare_systems", counted)
    assert main([*WORDS, "tensor=5,4", f"run_dir={folder}"]) == 1
    assert asked == []
    assert (folder / "rows.jsonl").read_text() == before
    with pytest.raises(InvalidInput, match=r"has not all cells .*overwrite it by force=true"):
        main([*WORDS, "tensor=4", "microbatches=8", f"run_dir={folder}"])
    assert (folder / "rows.jsonl").read_text() == before
    assert main([*WORDS, "tensor=4", "microbatches=8", f"run_dir={folder}", "force=true"]) == 0
    assert asked == ["gpt-1.3b", "gpt-23b"]


def test_an_interrupted_sweep_keeps_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def once(pipeline: Pipeline, systems: Mapping[str, System]) -> Comparison:
        if pipeline.shape.name == "gpt-23b":
            raise KeyboardInterrupt
        return compare_systems(pipeline, systems)

    monkeypatch.setattr(compare, "compare_systems", once)
    assert main([*WORDS, "tensor=4", f"run_dir={tmp_path}"]) == 130
    assert "interrupted: what was done so far is in" in capsys.readouterr().err
    assert {row.asked["shape"] for row in read_rows(tmp_path / "rows.jsonl")} == {"gpt-1.3b"}


@pytest.mark.parametrize(
    ("number", "name", "where", "what", "done"),
    [
        (signal.SIGINT, "Ctrl-C", Sweep, "run", 0),  # before the first cell
        (signal.SIGTERM, "SIGTERM", compare.PipelineStudy, "draw_sweep", 2),  # after the last one
    ],
)
def test_a_signal_outside_of_all_cells_loses_nothing(
    number: int,
    name: str,
    where: type[Any],
    what: str,
    done: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["experiment=lynx", "shape=gpt-1.3b", "-m", "microbatch=8,16", "plots=false", f"run_dir={tmp_path / 'run'}"]
    words += [f"~systems.{system}" for system in OTHERS]
    with monkeypatch.context() as patch:
        patch.setattr(where, what, lambda *_: os.kill(os.getpid(), number))
        assert main(words) == 130
    said = capsys.readouterr().err
    assert f"interrupted by {name}: what was done so far is in {tmp_path / 'run'}, {done} of 2 cells" in said
    assert main(words) == 0
    assert ("2 of 2 cells are done already" in capsys.readouterr().err) == (done == 2)
    assert {row.asked["microbatch"] for row in read_rows(tmp_path / "run" / "rows.jsonl")} == {8, 16}
