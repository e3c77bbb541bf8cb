"""The event log: what is written, and that a full disk ends the log only."""

import json
from pathlib import Path

import pytest

from runtime.elastic.events import EventLog, Stopwatch
from runtime.elastic.outcome import PARTS
from solvers.ir import InvalidInput


def test_events_are_kept_and_written(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "deep" / "run")
    log.add("step", step=1, loss=0.1)
    log.close()
    (line,) = (tmp_path / "deep" / "run" / "events.jsonl").read_text().splitlines()
    assert json.loads(line) == log.events[0]
    assert (log.events[0]["event"], log.events[0]["loss"]) == ("step", 0.1)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux's device that is always full")
def test_a_full_disk_ends_the_log_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").symlink_to("/dev/full")
    log = EventLog(tmp_path)
    log.add("step", step=1)
    log.add("step", step=2)
    log.close()
    assert [event["event"] for event in log.events] == ["step", "warning", "step"]
    (sentence,) = log.warnings
    assert sentence == (
        "the event log could not be written any more (No space left on device): training goes on, and events.jsonl "
        "ends here; make room for the next run"
    )


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInput, match=r"^the event log cannot be written to .*file/run \(Not a directory\): name"):
        EventLog(tmp_path / "file" / "run")


def test_parts_of_a_recovery_follow_each_other() -> None:
    watch = Stopwatch(failed=1_000, known=21_000, stopped=25_000, decided=26_000, grouped=40_000, transferred=41_000)
    assert watch.parts_us() == dict(zip(PARTS, (20, 1, 18, 1, None), strict=True))
    watch.stepped = 50_000
    assert sum(part or 0 for part in watch.parts_us().values()) == 49
    assert watch.stop_us() == 4
