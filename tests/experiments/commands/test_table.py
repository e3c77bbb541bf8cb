"""`bayplan table` as typed: listing, one entry, a system, all; written pages; Ctrl-C."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from experiments.rows import read_rows
from tests.experiments.commands.console import ROOT, call, refused
from tests.experiments.reproduction.fakes import squares_entry, value_entry, write_entry


@pytest.fixture
def entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two systems with three entries, in a folder of their own; the working folder is the test's."""
    folder = tmp_path / "entries"
    write_entry(folder, "school-figure-1", squares_entry())
    write_entry(folder, "school-figure-2", value_entry("broken", "x", parameters={}))
    write_entry(folder, "work-table-1", squares_entry(system="work", parameters={"upto": 4}))
    monkeypatch.setattr("experiments.reproduction.entry.SHIPPED", folder)
    monkeypatch.chdir(tmp_path)
    return folder


def test_without_a_name_the_entries_are_listed(entries: Path) -> None:
    outcome = call("table")
    assert (outcome.code, outcome.err) == (0, "")
    assert [line.split()[0] for line in outcome.out.splitlines()[2:]] == [
        path.stem for path in sorted(entries.iterdir())
    ]


def test_a_wrong_name_is_told_with_the_nearest_one(entries: Path) -> None:
    assert refused(call("table", "school-figre-1")) == (
        "there is no table 'school-figre-1': did you mean 'school-figure-1'?"
    )
    assert not Path("runs").exists()


def test_one_entry_is_shown_and_its_cells_are_kept(entries: Path) -> None:
    outcome = call("table", "school-figure-1")
    assert (outcome.code, outcome.err) == (0, "")
    assert "differs [1]" in outcome.out
    assert "They cannot add" in outcome.out
    assert len(list(Path("runs/table/school-figure-1").glob("*/*.json"))) == 3 + 1
    assert call("table", "school-figure-1") == outcome


def test_all_and_systems_go_on_after_a_fault(entries: Path) -> None:
    outcome = call("table", "all", "--out", "out")
    assert (outcome.code, outcome.err) == (0, "")
    assert "RuntimeError: no cell was reached" in outcome.out
    names = {"school-figure-1", "school-figure-2", "work-table-1"}
    assert {path.name for path in Path("out").iterdir()} == {
        f"{name}{end}" for name in names for end in (".md", ".jsonl")
    } | {"table.md"}
    assert {row.outcome for row in read_rows(Path("out/school-figure-2.jsonl"))} == {"error"}
    assert "| work-table-1 |" in Path("out/table.md").read_text()
    assert "work-table-1" not in call("table", "school").out


def test_a_summary_can_stand_in_a_readme(entries: Path) -> None:
    """tests/test_readmes.py compares blocks of READMEs with files under experiments/results."""
    call("table", "school-figure-1", "--out", "out")
    table, page = Path("out/table.md").read_text(), Path("out/school-figure-1.md").read_text()
    assert table.startswith("**") and "| school-figure-1 | Figure 1 | arithmetic |" in table
    assert "| quantity or claim |" in page


@pytest.mark.parametrize("arguments", [("--seed", "-1", "all"), ("--out", "entries/school-figure-1.yaml", "all")])
def test_bad_input_leaves_nothing_behind(entries: Path, arguments: tuple[str, ...]) -> None:
    refused(call("table", *arguments))
    assert not Path("runs").exists()


def test_a_faulty_entry_is_refused_before_anything_runs(entries: Path) -> None:
    write_entry(entries, "work-table-2", squares_entry(system="work", how="guessed"))
    assert refused(call("table", "work-table-1", "work-table-2")).startswith("table/work-table-2.yaml")
    assert not Path("runs").exists()


def test_ctrl_c_keeps_the_finished_cells_and_the_next_run_goes_on(tmp_path: Path) -> None:
    entries, marker, log = tmp_path / "entries", tmp_path / "marker", tmp_path / "log"
    write_entry(
        entries, "slow", value_entry("slow", "values", "sum", parameters={"log": str(log), "marker": str(marker)})
    )
    script = (
        "import sys, pathlib, experiments.reproduction.entry as entry; from experiments.cli import main; "
        f"entry.SHIPPED = pathlib.Path({str(entries)!r}); sys.exit(main(['table', 'slow']))"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", script]
    process = subprocess.Popen(command, cwd=tmp_path, env=environment, text=True, stdout=-1, stderr=-1)
    ends = time.monotonic() + 60
    while (not log.exists() or len(log.read_text().split()) < 2) and time.monotonic() < ends:
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert err == "bayplan: interrupted: what was computed is kept, the same command goes on from there\n"
    marker.touch()
    done = subprocess.run(command, cwd=tmp_path, env=environment, text=True, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert log.read_text().split() == ["0", "1", "1", "2"]
