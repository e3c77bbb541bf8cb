"""What a killed process costs beside one init_process_group: which are killed, the row, the table, refusals."""

from dataclasses import replace
from pathlib import Path

import pytest

from experiments.elastic.meeting import meetings_us
from experiments.elastic.recovery import kills_of, main, row_of, table_of
from runtime.elastic import PARTS, Outcome, Recovery, parse_kills
from solvers.ir.errors import InvalidInput

PARTS_US: dict[str, int | None] = dict(zip(PARTS, (10_000, 1000, 19_000, 30_000, 100_000), strict=True))


def recovery(lost: tuple[int, ...], parts_us: dict[str, int | None]) -> Recovery:
    return Recovery(2, 3, 8, lost, (), 1, 100, "4+4 ×8", "why", "", parts_us)


DONE = Outcome(
    (1.0,) * 4, ("a",), True, (8, 7),
    (recovery((1,), PARTS_US), recovery((), PARTS_US | {"redo": 0}), recovery((2,), PARTS_US | {"redo": 140_000})),
    (50_000,) * 4, (),
)  # fmt: skip


def test_the_oldest_process_goes_each_time_and_a_fresh_one_comes() -> None:
    injections, joins = parse_kills(kills_of(8, 5))
    assert [(one.node, one.step) for one in injections] == [(0, 3), (1, 11), (2, 19), (3, 27), (4, 35)]
    assert joins == {step + 2: ["fresh"] for step in (3, 11, 19, 27, 35)}


def test_joins_do_not_count_and_the_step_is_taken_off() -> None:
    figures = row_of("job", 8, DONE, [40_000, 55_000, 90_000], [1.04, 2.0]).figures
    assert figures["recovery_us"] == {**PARTS_US, "redo": 120_000}
    assert (figures["lost_us"], figures["worst_lost_us"], figures["failures"]) == (130_000, 150_000, 2)
    assert figures["over_init_process_group"] == pytest.approx(130 / 55)
    assert figures["before_redo_over_init"] == pytest.approx(60 / 55)
    assert figures["load"] == [1.0, 2.0]
    with pytest.raises(InvalidInput, match="no recovery came to a step"):
        row_of("job", 8, replace(DONE, recoveries=()), [1], [0, 0])


def test_the_table_says_the_ratio_and_the_load() -> None:
    table = table_of(row_of("job", 8, DONE, [55_000], [1, 2]))
    assert ("ratio", "2.36 ×") in table.body
    assert ("redo, median", "120.0") in table.body
    assert table.note.startswith("2 kills; load 1 before and 2 after.")


def test_processes_meet_as_often_as_asked() -> None:
    met = meetings_us(3, 2)
    assert len(met) == 2
    assert all(us > 0 for us in met)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--nodes", "5"], "--nodes is 5: give an even number"),
        (["--failures", "0"], "--failures is 0: give at least 1"),
    ],
)
def test_other_words_are_refused(words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert sentence in capsys.readouterr().err


def test_a_folder_that_cannot_be_made_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--out", str(Path("/proc/nothing"))]) == 2
    assert "cannot make the folder /proc/nothing" in capsys.readouterr().err
