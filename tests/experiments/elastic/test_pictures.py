"""The picture of recoveries: what each node does without gaps, titles, files, and refusals of its command."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from experiments.elastic.log import episodes_of
from experiments.elastic.pictures import main, spans_of, title_of
from tests.experiments.elastic.events import log, written

CUT_SHORT, JOIN = episodes_of(log())


def lane(node: int) -> list[tuple[str, float, float]]:
    return [(one.what, one.begin_s, one.end_s) for one in spans_of(CUT_SHORT) if one.node == node]


def test_who_survives_does_one_thing_after_the_other_until_the_step() -> None:
    spans = lane(0)
    assert [what for what, _, _ in spans] == [
        *("detect", "regroup", "decide", "regroup", "transfer"),  # cut short by the second failure
        *("regroup", "decide", "regroup", "transfer", "redo"),
    ]
    ends = [CUT_SHORT.began_s, *(end for _, _, end in spans)]
    assert [begin for _, begin, _ in spans] == ends[:-1]
    assert ends[-1] == CUT_SHORT.stepped_s


def test_who_dies_does_nothing_afterwards_and_who_joins_begins_with_the_call() -> None:
    assert lane(1) == []
    assert lane(2)[-1] == ("transfer", 2.64, 2.66)
    assert [(one.what, one.begin_s) for one in spans_of(JOIN) if one.node == 4] == [
        ("regroup", 3.2),
        ("transfer", 3.3),
        ("redo", 3.4),
    ]


def test_titles_say_what_happened_and_what_was_done() -> None:
    head, told = title_of(CUT_SHORT)
    assert head.startswith(
        "4 → 2 nodes: node 1 killed at forward of step 3, node 2 killed at transfer of step 3; 220 ms"
    )
    assert told == (
        "plan layout 3; moved: 2 layers, 1.5 MB in 2 rounds\ndetect 10, decide 1, regroup 9, transfer 20, redo 100 (ms)"
    )
    assert title_of(JOIN)[0].startswith("2 → 3 nodes: node 4 joined; 500 ms")


def test_the_command_draws_a_run_that_was_made_before(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(written(tmp_path)), "--out", str(tmp_path / "out")]) == 0
    text = (tmp_path / "out" / "recoveries.svg").read_text()
    assert ElementTree.fromstring(text).tag.endswith("svg")
    assert (tmp_path / "out" / "recoveries.png").stat().st_size > 10_000
    assert main([str(tmp_path)]) == 0
    assert (tmp_path / "recoveries.svg").read_text() == text  # the same log gives the same bytes
    assert "written to" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--first", "3"], "--first is 3, but there are 2 recoveries: count from 1"),
        (["--first", "0"], "--first is 0"),
        (["--out", "/proc/nothing"], "cannot make the folder /proc/nothing"),
    ],
)
def test_what_cannot_be_drawn_is_one_sentence(
    words: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(written(tmp_path)), *words]) == 2
    assert sentence in capsys.readouterr().err


def test_a_training_without_failures_has_nothing_to_draw(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "events.jsonl").write_text('{"at_s": 0.1, "event": "done", "steps": 1}\n')
    assert main([str(tmp_path)]) == 2
    assert "has no recovery that came to a step" in capsys.readouterr().err
