"""A run's folder: whole files, a new folder for each run, one sentence where nothing can be written."""

import os
from pathlib import Path

import pytest

from experiments.grid import Cell
from experiments.run_directory import RunDirectory, open_run_directory
from solvers.ir import InvalidInput


def test_two_runs_of_one_second_have_folders_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first, second = open_run_directory("demo", None), open_run_directory("demo", None)
    assert first.path != second.path
    assert first.path.parent == second.path.parent == Path("runs/demo")


def test_files_are_written_whole_and_leave_nothing_else(tmp_path: Path) -> None:
    directory = open_run_directory("demo", str(tmp_path / "here"))
    directory.text("a/b.txt", "é")
    directory.json("c.json", {"x": 1})
    directory.binary("d.bin", b"\0")
    found = sorted(str(path.relative_to(directory.path)) for path in directory.path.rglob("*") if path.is_file())
    assert found == ["a/b.txt", "c.json", "d.bin"]
    assert (directory.path / "a/b.txt").read_text(encoding="utf-8") == "é"


def test_a_write_that_ctrl_c_ends_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(handle: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        RunDirectory(tmp_path).binary("a", b"b")
    assert list(tmp_path.iterdir()) == []


def test_all_of_a_cell_is_on_disk_before_it_takes_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_disk, named = set[int](), list[str]()
    fsync, replace = os.fsync, Path.replace

    def syncing(handle: int) -> None:
        fsync(handle)
        on_disk.add(os.fstat(handle).st_ino)

    def naming(path: Path, target: Path) -> Path:
        assert path.stat().st_ino in on_disk, f"{target} takes its name before its content is on disk"
        if target.name == "done":
            assert {folder.stat().st_ino for folder in (tmp_path, tmp_path / "plans")} <= on_disk
        else:
            on_disk.discard(target.parent.stat().st_ino)  # a new name, which is not there yet
        named.append(target.name)
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", syncing)
    monkeypatch.setattr(Path, "replace", naming)
    directory = RunDirectory(tmp_path)
    directory.json("plans/a.json", {"x": 1})
    directory.binary("lanes.png", b"\0")
    Cell((), None, {}, directory).finish([])  # type: ignore[type-var]
    assert named == ["a.json", "lanes.png", "rows.jsonl", "done"]


def test_a_run_that_wrote_nothing_leaves_no_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    open_run_directory("demo", None).remove_if_empty()
    assert list(tmp_path.iterdir()) == []
    kept = open_run_directory("demo", None)
    kept.text("a.txt", "")
    open_run_directory("demo", None).remove_if_empty()
    (tmp_path / "own").mkdir()
    open_run_directory("demo", "own").remove_if_empty()
    assert sorted(path.name for path in tmp_path.rglob("*")) == sorted(["runs", "demo", kept.path.name, "a.txt", "own"])


def test_a_place_below_a_file_is_refused_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match=r"cannot make the folder .*file/run"):
        open_run_directory("demo", str(tmp_path / "file" / "run"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_place_is_refused_in_one_sentence(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(InvalidInput, match="choose a writable"):
        open_run_directory("demo", str(tmp_path))


def test_a_file_that_cannot_be_written_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    directory = open_run_directory("demo", str(tmp_path))
    (tmp_path / "taken").mkdir()
    with pytest.raises(InvalidInput, match="cannot write"):
        directory.binary("taken", b"x")
    with pytest.raises(InvalidInput, match="give names in UTF-8"):
        directory.text("table.txt", "runs/\udcff")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]
