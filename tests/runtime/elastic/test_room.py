"""A folder that cannot be written to is told before anything is started, and nothing is left in it."""

import errno
import os
from pathlib import Path

import pytest

from runtime.elastic.room import require_room
from solvers.ir import InvalidInput


def test_a_folder_with_room_is_made_and_left_empty(tmp_path: Path) -> None:
    require_room(tmp_path / "a" / "b", "checkpoints", "checkpoint_dir")
    assert [path.name for path in tmp_path.rglob("*")] == ["a", "b"]


def test_a_full_disk_is_a_sentence_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk takes a name, and then no byte."""

    def full(path: Path, content: bytes) -> int:
        path.touch()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", full)
    place = tmp_path / "a" / "b"
    sentence = f"the log cannot be written to {place} (No space left on device): name another run_dir, or make room"
    with pytest.raises(InvalidInput, match=f"^{sentence} there$".replace("(", r"\(").replace(")", r"\)")):
        require_room(place, "the log", "run_dir")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InvalidInput):
        require_room(tmp_path, "the log", "run_dir")
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_way_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match=r"\(Not a directory\): name another run_dir"):
        require_room(tmp_path / "file" / "run", "the log", "run_dir")
