"""Entries from their files to their rows: cached, resumed, and never silent about a fault."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

from experiments.progress import stages
from experiments.reproduction.cells import Cells
from experiments.reproduction.entry import Entry
from experiments.reproduction.run import Options, Outcome, cache_key, run_entry
from experiments.rows import rows_from_text, rows_to_text
from tests.experiments.reproduction.fakes import squares_entry, value_entry


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Outcome]:
    """Runs an entry with its cache in the test's folder."""

    def one(raw: dict[str, Any], **options: Any) -> Outcome:
        return run_entry("one", msgspec.convert(raw, Entry), Options(tmp_path, tmp_path / "cache", **options))

    return one


def numbers(log: Path) -> list[int]:
    return [int(line) for line in log.read_text().split()] if log.exists() else []


def test_each_row_gets_its_verdict(run: Callable[..., Outcome]) -> None:
    outcome = run(squares_entry())
    assert [one.verdict for one in outcome.rows] == [
        "reproduced",
        "differs",
        "within range",
        "ours only",
        "shape holds",
    ]
    assert [one.reason for one in outcome.rows] == [None, "They cannot add", None, "an image", None]
    assert outcome.failure is None


def test_nothing_is_computed_twice(run: Callable[..., Outcome], tmp_path: Path) -> None:
    log = tmp_path / "log"
    raw = squares_entry(parameters={"upto": 3, "log": str(log)})
    first = run(raw)
    again = run(raw)
    assert numbers(log) == [0, 1, 2]
    assert again.result == first.result
    assert [(cell.key, cell.value) for cell in again.cells] == [(cell.key, cell.value) for cell in first.cells]
    run(raw, fresh=True)
    assert numbers(log) == [0, 1, 2, 0, 1, 2]


def test_a_value_of_the_paper_is_judged_anew_without_computing(run: Callable[..., Outcome], tmp_path: Path) -> None:
    log = tmp_path / "log"
    raw = squares_entry(parameters={"upto": 3, "log": str(log)})
    run(raw)
    raw["quantities"][0]["paper"] = {"value": 40}
    assert run(raw).rows[0].verdict == "differs"
    assert numbers(log) == [0, 1, 2]


def test_another_parameter_or_seed_is_another_key() -> None:
    entry = msgspec.convert(squares_entry(), Entry)
    other = msgspec.convert(squares_entry(parameters={"upto": 4}), Entry)
    reading = msgspec.convert(squares_entry(hardware=["sim-small"]), Entry)
    words = msgspec.convert(squares_entry(title="Other words"), Entry)
    assert len({cache_key(entry, 0), cache_key(entry, 1), cache_key(other, 0), cache_key(reading, 0)}) == 4
    assert cache_key(words, 0) == cache_key(entry, 0)


def test_a_failing_cell_is_marked_and_only_it_is_tried_again(run: Callable[..., Outcome], tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    raw = value_entry("stumbling", "values", "sum", parameters={"marker": str(marker)})
    outcome = run(raw)
    assert outcome.result is not None
    assert outcome.result.series[0].points == {"a": 1.0, "b": None, "c": "out of memory", "d": None}
    failures = [cell.failure for cell in outcome.cells]
    assert failures == [None, "b is 0, below 1: raise it", None, "ZeroDivisionError: division by zero"]
    assert outcome.rows[0].ours == (1.0, 1.0)
    marker.touch()
    repaired = run(raw)
    assert [cell.stored for cell in repaired.cells] == [True, False, True, False]
    assert repaired.rows[0].ours == (3.0, 3.0)


@pytest.mark.parametrize("swallow", [False, True])
def test_ctrl_c_loses_nothing_and_stores_nothing_half_done(
    run: Callable[..., Outcome], tmp_path: Path, swallow: bool
) -> None:
    """A solver may take Ctrl-C for a wish to end early; its best so far must not become the cell's value."""
    from experiments.commands.interrupts import Interrupts

    raw = value_entry(
        "interrupted", "values", "sum", parameters={"marker": str(tmp_path / "marker"), "swallow": swallow}
    )
    with Interrupts(patient=False) as asked, pytest.raises(KeyboardInterrupt):
        run(raw, interrupted=lambda: asked.asked_by is not None)
    outcome = run(raw)
    assert [cell.stored for cell in outcome.cells] == [True, False, False]
    assert outcome.rows[0].ours == (3.0, 3.0)


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        (value_entry("broken", "x", parameters={}), "RuntimeError: no cell was reached"),
        (value_entry("nothing", "x", parameters={}), "returned dict: it must return a Result"),
        (value_entry("absent", "x", parameters={}), "has no function absent"),
        (squares_entry(compute="experiments.lynx.nowhere:f"), "there is no module experiments.lynx.nowhere"),
        (squares_entry(parameters={"upto": 3, "lgo": ""}), "did you mean 'log'"),
        (squares_entry(parameters={}), "needs the parameter 'upto'"),
        (squares_entry(hardware=["sim-nowhere"]), "no file matches 'conf/hardware/sim-nowhere.json'"),
    ],
)
def test_without_a_result_every_row_says_why(run: Callable[..., Outcome], raw: dict[str, Any], sentence: str) -> None:
    outcome = run(raw)
    assert {one.verdict for one in outcome.rows} == {"failed"}
    assert all(sentence in (one.reason or "") for one in outcome.rows)


def test_what_only_the_paper_has_is_said_to_be_so(run: Callable[..., Outcome]) -> None:
    raw = squares_entry(compute=None, how="paper only", why_not="There is no such machine", parameters={})
    assert {(one.verdict, one.reason) for one in run(raw).rows} == {("paper only", "There is no such machine")}


def test_only_declared_files_are_given_out(run: Callable[..., Outcome]) -> None:
    parameters = {"machine": "sim-small", "model": "gpt-7b"}
    declared = value_entry("inputs", "layers", parameters=parameters, hardware=["sim-small"], models=["gpt-7b"])
    assert run(declared).rows[0].ours == (32.0, 32.0)
    outcome = run(value_entry("inputs", "layers", parameters=parameters, hardware=["sim-small"]))
    assert "no name in the entry's `models` 'gpt-7b'" in (outcome.rows[0].reason or "")


def test_rows_say_where_they_come_from(run: Callable[..., Outcome]) -> None:
    outcome = run(squares_entry(hardware=["sim-small"]), seed=7)
    rows = outcome.to_rows()
    assert rows_from_text(rows_to_text(rows)) == rows
    assert len(rows) == 5 + 3
    assert {row.seed for row in rows} == {7}
    expected = "arithmetic; hardware sim-small; bayplan table one --seed 7"
    assert {row.provenance for row in rows} == {expected}
    assert rows[1].figures["paper"] == {"value": 10.0}
    assert rows[1].figures["ours"] == [5.0, 5.0]
    assert [row.figures["value"] for row in rows[5:]] == [0.0, 1.0, 4.0]


def test_a_value_that_is_no_json_fails_its_cell_and_a_spoilt_file_is_computed_again(tmp_path: Path) -> None:
    cells = Cells(tmp_path / "cells")
    assert cells.get({"n": 1}, lambda: float("nan")) is None
    assert "JSON" in (cells.done[0].failure or "")
    assert cells.get({"n": 2}, lambda: {3: (1, 2)}) == {"3": [1, 2]}
    (file,) = (tmp_path / "cells").iterdir()
    file.write_text("{")
    assert cells.get({"n": 2}, lambda: 5) == 5


def test_a_terminal_sees_which_cell_runs_and_how_many_are_done(tmp_path: Path) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    with stages(None, console) as shown:
        cells = Cells(tmp_path, "lynx-figure-9", stages=shown)
        cells.total(2)
        cells.get({"model": "gpt-7b", "mbs": 8}, float, 1)
        cells.get({"model": "gpt-7b", "mbs": 16}, float, 2)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "lynx-figure-9: gpt-7b 16" in text
    assert "2/2" in text
