"""Where runs are kept: one way to say it at a time, and nobody's folder is overwritten unasked."""

from pathlib import Path

import pytest

from experiments.run_directory import open_run, require_same, same_settings
from solvers.ir import InvalidInput
from tests.experiments.commands.console import call, refused

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
