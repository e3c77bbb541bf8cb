"""Where runs are kept: one way to say it at a time, and nobody's folder is overwritten unasked."""

import json
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from experiments.places import quoted
from experiments.run_directory import open_run, require_same, same_settings
from experiments.sweeping.record import remove_foreign
from solvers.ir import InvalidInput
from tests.experiments.commands.console import call, refused
from tests.experiments.sweeping.words import OTHERS

SYSTEMS = [f"~systems.{name}" for name in OTHERS]
PAPER = ["experiment=lynx", "shape=gpt-1.3b", "plots=false"]


def test_two_names_of_one_place_are_refused(tmp_path: Path) -> None:
    said = refused(call("compare", *PAPER, f"hydra.run.dir={tmp_path / 'a'}", f"run_dir={tmp_path / 'b'}"))
    assert said.startswith("run_dir and hydra.run.dir are both given")
    said = refused(call("compare", *PAPER, "-m", f"hydra.sweep.dir={tmp_path / 'a'}", f"run_dir={tmp_path / 'b'}"))
    assert said.startswith("run_dir and hydra.sweep.dir are both given")
    assert list(tmp_path.iterdir()) == []


def test_another_run_is_overwritten_by_force_only(tmp_path: Path) -> None:
    place = f"run_dir={tmp_path / 'run'}"
    assert call("compare", *PAPER, place).code == 0
    before = (tmp_path / "run" / "rows.jsonl").read_text()
    said = refused(call("compare", *PAPER, "microbatch=8", place))
    assert said.endswith("holds a run with other settings: choose another folder, or overwrite it by force=true")
    assert "holds a single run" in refused(call("compare", *PAPER, "microbatch=8,16", "-m", place))
    assert (tmp_path / "run" / "rows.jsonl").read_text() == before
    assert call("compare", *PAPER, "microbatch=8", place, "force=true").code == 0
    assert (tmp_path / "run" / "rows.jsonl").read_text() != before


def test_settings_are_the_same_where_no_number_can_differ() -> None:
    assert same_settings("steps: 1\nrun_dir: a\n", "run_dir: b\nforce: true\nsteps: 1\n")
    assert not same_settings("steps: 1\n", "steps: 2\n")
    assert not same_settings("steps: 1\n", "steps: [1\n")


class Asked:
    """Settings as folders see them."""

    def __init__(self, run_dir: Path, force: bool) -> None:
        self.name, self.force = "demo", force
        self.run_dir: str | None = str(run_dir)


def test_a_trainers_folder_is_kept_too(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("steps: 1\n")
    assert open_run(Asked(tmp_path, force=False), "steps: 1\nrun_dir: x\n").path == tmp_path
    with pytest.raises(InvalidInput, match="other settings"):
        open_run(Asked(tmp_path, force=False), "steps: 2\n")
    assert open_run(Asked(tmp_path, force=True), "steps: 2\n").path == tmp_path
    (tmp_path / "sweep.json").write_text("{}")
    with pytest.raises(InvalidInput, match="holds a sweep"):
        require_same(tmp_path, "steps: 1\n")


@pytest.mark.parametrize("text", ["a'b", "${x}", r"\${x}", "a\\", r"a\'b", 'a "b",c[', r"\\'${q}\\"])
def test_quoted_text_means_itself(text: str) -> None:
    value = OverridesParser.create().parse_override(f"key={quoted(text)}").value()
    assert OmegaConf.create({"key": value}).key == text


@pytest.mark.parametrize("launcher", ["basic", "processes"])
def test_a_sweep_is_kept_in_a_folder_with_an_apostrophe(launcher: str, tmp_path: Path) -> None:
    folder = tmp_path / "it's"
    words = [*PAPER, "microbatch=8,16", "-m", f"hydra/launcher={launcher}", f"run_dir={quoted(str(folder))}"]
    assert call("compare", *words, *SYSTEMS).code == 0
    assert len(list(folder.glob("cells/*/done"))) == 2
    said = refused(call("compare", *words[:-1], r"run_dir='a\${x}'"))
    assert "has ${ in its name, which Hydra would resolve: choose another folder" in said


def test_a_single_run_and_a_sweep_take_each_others_place_by_force_only(tmp_path: Path) -> None:
    place = tmp_path / "run"
    one = [*PAPER, *SYSTEMS, f"run_dir={place}"]
    many = [*one, "-m", "microbatch=8,16"]
    assert call("compare", *many).code == 0
    assert "holds a sweep" in refused(call("compare", *one))
    assert call("compare", *one, "force=true").code == 0
    assert not (place / "sweep.json").exists() and call("compare", *one).code == 0
    assert call("compare", *many, "force=true").code == 0
    assert not (place / "config.yaml").exists()


def test_an_empty_name_is_no_folder() -> None:
    assert refused(call("compare", *PAPER, "run_dir=''")).startswith("run_dir is empty")
    assert refused(call("compare", *PAPER, "hydra.run.dir=''")).startswith("hydra.run.dir is empty")
    assert refused(call("compare", *PAPER, "hydra.run.dir='${nope}'")).endswith(": correct the value")
    assert "nope" in refused(call("compare", *PAPER, "hydra.sweep.dir='${nope}'", "-m", "microbatch=8"))


def test_a_grid_that_cannot_be_run_leaves_nothing(tmp_path: Path) -> None:
    place = f"run_dir={tmp_path / 'run'}"
    said = refused(call("compare", *PAPER, "-m", "cluster=glob(x*)", place))
    assert said.startswith("the grid of ") and "has no cell" in said
    said = refused(call("compare", *PAPER, "-m", "microbatch=8,-1", place))
    assert "microbatch" in said and not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["-m", "microbatch=8", "hydra.sweeper.max_batch_size=0"], "max_batch_size is 0, below 1"),
        (["-m", "hydra.sweeper.params={microbatch: '8,16'}"], "hydra.sweeper.params is null and takes no dictionary"),
        (["hydra.job.env_copy=[NOPE_AT_ALL]"], "env_copy names NOPE_AT_ALL, which is not set"),
        (["name=it's"], 'cannot read the override "name=it\'s": write key=value, and quote'),
    ],
)
def test_what_hydra_stumbles_over_is_a_sentence(words: list[str], sentence: str, tmp_path: Path) -> None:
    assert sentence in refused(call("compare", *PAPER, *words, f"run_dir={tmp_path / 'run'}"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("subdir", ["../../esc", "a/../../esc", "{}/esc", "."])
def test_cells_stay_inside_the_sweeps_folder(subdir: str, tmp_path: Path) -> None:
    words = ["-m", "microbatch=8", f"hydra.sweep.subdir={subdir.format(tmp_path)}", f"run_dir={tmp_path / 'run'}"]
    assert "which is no folder inside the sweep's" in refused(call("compare", *PAPER, *words))
    assert list(tmp_path.iterdir()) == []


def test_a_folders_name_is_one_line(tmp_path: Path) -> None:
    said = refused(call("compare", *PAPER, "-m", "microbatch=8", f"run_dir='{tmp_path}/a\nb'"))
    assert "which holds a line break: choose a name of one line" in said
    assert list(tmp_path.iterdir()) == []


def test_force_removes_cells_only(tmp_path: Path) -> None:
    run, outside = tmp_path / "run", tmp_path / "outside"
    for folder in (run / "cells" / "old", run / "mine", outside):
        folder.mkdir(parents=True)
        (folder / ("config.yaml" if folder.name != "mine" else "notes.txt")).write_text("steps: 1\n")
    names = ["cells/old", "mine", "gone", "../outside", str(outside), ".", "a\0b"]
    (run / "sweep.json").write_text(json.dumps({"format": "bayplan-sweep/1", "cells": names}))
    remove_foreign(run, [])
    assert sorted(place.name for place in tmp_path.rglob("*")) == [
        "cells", "config.yaml", "mine", "notes.txt", "outside", "run", "sweep.json",
    ]  # fmt: skip


def test_equal_cells_are_one_and_said(tmp_path: Path) -> None:
    outcome = call("compare", *PAPER, *SYSTEMS, "-m", "microbatch=8,8", f"run_dir={tmp_path / 'run'}")
    assert outcome.code == 0 and len(list(tmp_path.glob("run/cells/*"))) == 1
    assert "2 cells were asked for, and 1 differ: equal ones are computed, and counted, once" in outcome.err
