"""The supervisor's side of checkpoints: the last part makes one, a fault ends one, and training goes on."""

import logging
from pathlib import Path
from queue import SimpleQueue

import pytest

from runtime.elastic.checkpoint import aside, steps_in
from runtime.elastic.events import EventLog
from runtime.elastic.keeper import Keeper, Kept
from runtime.elastic.messages import Saved, Saving
from tests.runtime.elastic.test_checkpoint import LOSSES, origin, save

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


def keeper(folder: Path) -> tuple[Keeper, SimpleQueue[Kept], EventLog]:
    saving = Saving(folder=str(folder), every=1, keep=2, on_exit=False, origin=origin())
    inbox: SimpleQueue[Kept] = SimpleQueue()
    log = EventLog(None)
    return Keeper(saving, inbox, log), inbox, log


def said(node: int, step: int, fault: str = "") -> Saved:
    return Saved(node=node, generation=1, step=step, layers=() if fault else (node, node + 2, node + 4), fault=fault)


def test_the_last_part_makes_it_whole(tmp_path: Path) -> None:
    asked, inbox, log = keeper(tmp_path)
    save(tmp_path, 2, nodes=1)
    save(tmp_path, 3)
    asked.saved(said(0, 2), LOSSES)  # the other node ends before it has written
    asked.saved(said(1, 3), LOSSES)
    assert not asked.busy
    asked.saved(said(0, 3), LOSSES)
    asked.kept(inbox.get(timeout=60))
    assert [(one["event"], one["step"]) for one in log.events] == [("checkpoint", 3), ("checkpoint-dropped", 2)]
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000003"]
    back = asked.go_back(4)
    assert back is not None and back.manifest.step == 3
    assert asked.go_back(2) is None


def test_a_fault_is_told_once_and_frees_the_room(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    asked, _, log = keeper(tmp_path)
    save(tmp_path, 2)
    with caplog.at_level(logging.WARNING, "bayplan.elastic"):
        asked.saved(said(0, 2), LOSSES)
        asked.saved(said(1, 2, "No space left on device"), LOSSES)
        save(tmp_path, 2, nodes=1)  # who had not heard writes after that
        asked.saved(said(0, 2), LOSSES)
    assert not aside(tmp_path, 2, 1).exists()
    expected = (
        "the checkpoint of step 2 was not written (No space left on device on node 1): training goes on, and the one "
        "before stays the last"
    )
    assert log.warnings == [expected]
    assert [one.getMessage() for one in caplog.records if one.name == "bayplan.elastic"] == [expected]
    assert not asked.busy


def test_who_writes_into_a_dropped_one_is_not_heard(tmp_path: Path) -> None:
    """Its folder has gone with the checkpoint, which another node's end had made impossible before."""
    asked, inbox, log = keeper(tmp_path)
    save(tmp_path, 2, nodes=1)
    asked.saved(said(0, 2), LOSSES)
    save(tmp_path, 3)
    for node in (0, 1):
        asked.saved(said(node, 3), LOSSES)
    asked.kept(inbox.get(timeout=60))
    asked.saved(said(1, 2, "No such file or directory"), LOSSES)
    save(tmp_path, 2, nodes=1)  # or it made the folder anew
    asked.saved(said(0, 2), LOSSES)
    assert log.warnings == []
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000003"]


def test_what_cannot_be_finished_is_told(tmp_path: Path) -> None:
    asked, inbox, log = keeper(tmp_path)
    save(tmp_path, 2)
    (aside(tmp_path, 2, 1) / "manifest.json.new").mkdir()  # where the manifest is to be written first
    for node in (0, 1):
        asked.saved(said(node, 2), LOSSES)
    asked.kept(inbox.get(timeout=60))
    assert log.warnings[0].startswith("the checkpoint of step 2 could not be finished (Is a directory): training goes")
    assert steps_in(tmp_path) == []
    save(tmp_path, 3, nodes=1)
    asked.close()
    assert list(tmp_path.iterdir()) == []


def test_without_a_folder_there_are_none() -> None:
    asked = Keeper(None, SimpleQueue(), EventLog(None))
    assert asked.go_back(9) is None
    asked.close()
