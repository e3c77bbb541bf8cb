"""The event log read again: recoveries, their attempts and failures, the steps of each layout."""

from pathlib import Path

import pytest

from experiments.elastic.log import episodes_of, read_events, trained_of
from solvers.ir.errors import InvalidInput
from tests.experiments.elastic.events import log, written


def test_a_recovery_that_was_cut_short_is_one_with_the_next(tmp_path: Path) -> None:
    first, second = episodes_of(read_events(written(tmp_path)))
    assert [(one.node, one.how, one.moment) for one in first.failures] == [
        (1, "kill", "forward"),
        (2, "kill", "transfer"),
    ]
    assert (first.began_s, first.stepped_s, first.step) == (2.6, 2.82, 3)
    assert [one.before for one in first.attempts] == [(0, 1, 2, 3), (0, 2, 3)]
    assert first.attempts[1].received_bytes == {0: 0, 3: 1_500_000}
    assert (second.failures, second.began_s, second.step) == ([], 3.1, 5)


def test_steps_belong_to_their_layouts_but_for_each_ones_first() -> None:
    assert [list(one.took_us) for one in trained_of(log())] == [[50_000, 60_000], [], [90_000], []]


def test_a_recovery_that_never_came_to_a_step_is_none() -> None:
    assert episodes_of(event for event in log() if event["event"] != "recovered") == []


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (None, "has no events.jsonl: name a folder of bayplan train"),
        ("{", "line 1 is no JSON"),
        ("[1]", "line 1 is no event: it needs at_s and event"),
        ('{"at_s": "x", "event": "step"}', "line 1 is no event"),
    ],
)
def test_what_is_no_log_is_refused(text: str | None, sentence: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "events.jsonl").write_text(text)
    with pytest.raises(InvalidInput, match=sentence):
        read_events(tmp_path)
    with pytest.raises(InvalidInput, match="there is no folder"):
        read_events(tmp_path / "none")


def test_a_log_of_another_version_is_refused() -> None:
    events = [{key: value for key, value in event.items() if key != "received_bytes"} for event in log()]
    with pytest.raises(InvalidInput, match=r"another version's \('received_bytes' is missing"):
        episodes_of(events)
