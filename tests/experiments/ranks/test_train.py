"""The command: its row, table and pictures, and an exit code that tells bits apart."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from experiments.ranks import train
from experiments.ranks.outcomes import equal_in_all, table_of
from experiments.ranks.programs import Job, Trained
from experiments.ranks.reference import reference
from experiments.rows import read_rows
from experiments.tables import to_markdown

WORDS = ["experiment=ranks", "ranks=2", "steps=2", "model.layers=2", "model.width=16", "model.context=8"]


def test_a_run_leaves_its_row_its_table_a_report_a_rank_and_the_lanes(tmp_path: Path) -> None:
    assert train.main([*WORDS, "style=1f1b", "microbatches=2", f"run_dir={tmp_path}"]) == 0
    (row,) = read_rows(tmp_path / "rows.jsonl")
    assert equal_in_all(row) and row.figures["races"] == 0
    assert row.asked["style"] == "1f1b" and row.figures["losses"][0] == []  # the first stage sees no loss
    assert to_markdown([table_of(row)]) == (tmp_path / "table.md").read_text()
    assert {path.name for path in (tmp_path / "reports").iterdir()} == {"rank-0.json", "rank-1.json"}
    assert ElementTree.parse(tmp_path / "lanes.svg").getroot().tag.endswith("svg")


def test_other_bits_are_told_and_end_with_code_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def other(job: Job) -> list[Trained]:
        found = reference(job)
        next(iter(found[1].gradients.values())).add_(1.0)
        return found

    monkeypatch.setattr(train, "reference", other)
    assert train.main([*WORDS, "plots=false", f"run_dir={tmp_path}"]) == 1
    (row,) = read_rows(tmp_path / "rows.jsonl")
    assert row.figures["equal_gradients"] == [True, False]
    assert "NO" in capsys.readouterr().out


def test_help_says_what_can_be_set(capsys: pytest.CaptureFixture[str]) -> None:
    assert train.main(["--help"]) == 0
    assert "style=ddp|fsdp2|tp|1f1b" in capsys.readouterr().out
