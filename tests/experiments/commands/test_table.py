"""`bayplan table` as typed: listing, one entry, a system, all; written pages; Ctrl-C."""

import json
import os
import shutil
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
    } | {"table.md", "score.md"}
    assert Path("out/table.md").read_text().startswith(Path("out/score.md").read_text())
    assert {row.outcome for row in read_rows(Path("out/school-figure-2.jsonl"))} == {"error"}
    assert "| work-table-1 |" in Path("out/table.md").read_text()
    assert "work-table-1" not in call("table", "school").out


def test_a_folder_of_pages_is_added_to_and_keeps_what_failed_less(
    entries: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call("table", "school", "--out", "out")
    before, page = Path("out/table.md").read_text(), Path("out/school-figure-1.jsonl").read_text()
    call("table", "school-figure-1", "--out", "out")
    assert Path("out/table.md").read_text() == before, "the other entry is still counted"
    monkeypatch.setattr("tests.experiments.reproduction.fakes.squares", None)
    failed = call("table", "school-figure-1", "--out", "out", "--fresh")
    assert "school-figure-1 failed: its page and rows in out are left as they were" in failed.out
    assert (Path("out/table.md").read_text(), Path("out/school-figure-1.jsonl").read_text()) == (before, page)


def test_a_summary_can_stand_in_a_readme(entries: Path) -> None:
    """tests/test_readmes.py compares blocks of READMEs with files under experiments/results."""
    call("table", "school-figure-1", "--out", "out")
    table, page = Path("out/table.md").read_text(), Path("out/school-figure-1.md").read_text()
    assert table.startswith("**Score**") and "| school-figure-1 | Figure 1 | arithmetic |" in table
    assert "| quantity or claim |" in page


@pytest.mark.parametrize(("form", "begins"), [("md", "**Score**"), ("csv", "system,"), ("html", "<!doctype html>")])
def test_one_document_of_each_format(entries: Path, form: str, begins: str) -> None:
    outcome = call("table", "all", "--format", form)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.startswith(begins) and "They cannot add" in outcome.out
    written = call("table", "all", "--format", form, "--out", "out")
    assert written.code == 0 and "written to out" in written.out
    assert Path(f"out/table.{form}").read_text() == outcome.out


def test_json_is_a_format_too(entries: Path) -> None:
    told = call("table", "school", "--format", "json")
    assert told == call("table", "school", "--json")
    assert json.loads(told.out)["score"][0]["paper"] == "school"
    assert json.loads(call("table", "--format", "json").out)["entries"][2]["name"] == "work-table-1"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["all", "--json", "--format", "csv"], "--json and --format csv ask for two documents"),
        (["all", "--json", "--out", "out"], "--json prints the rows that --out writes"),
        (["--format", "csv"], "without a name the entries are only listed"),
        (["--out", "out"], "without a name the entries are only listed"),
    ],
)
def test_what_contradicts_itself_is_refused(entries: Path, words: list[str], sentence: str) -> None:
    assert sentence in refused(call("table", *words))
    assert not Path("out").exists()


def test_long_entries_of_all_are_of_kept_results_and_named_ones_are_not(
    entries: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call("table", "work-table-1", "--out", "kept/work")
    shutil.rmtree("runs")
    monkeypatch.setattr("experiments.reproduction.run.KEPT", tmp_path / "kept")
    monkeypatch.setattr("experiments.reproduction.kept.LONG_S", -1.0)
    told = json.loads(call("table", "all", "--json").out)["entries"]
    assert {entry["name"]: entry["how"] for entry in told} == {
        "school-figure-1": "arithmetic", "school-figure-2": "arithmetic", "work-table-1": "arithmetic, kept",
    }  # fmt: skip
    assert not Path("runs/table/work-table-1").exists()
    for words in (("work-table-1",), ("all", "--long")):
        shutil.rmtree("runs", ignore_errors=True)
        told = json.loads(call("table", *words, "--json").out)["entries"]
        assert told[-1]["how"] == "arithmetic"
        assert Path("runs/table/work-table-1").exists()


@pytest.mark.parametrize("arguments", [("--seed", "-1", "all"), ("--out", "entries/school-figure-1.yaml", "all")])
def test_bad_input_leaves_nothing_behind(entries: Path, arguments: tuple[str, ...]) -> None:
    refused(call("table", *arguments))
    assert not Path("runs").exists()


def test_a_faulty_entry_is_refused_before_anything_runs(entries: Path) -> None:
    write_entry(entries, "work-table-2", squares_entry(system="work", how="guessed"))
    assert refused(call("table", "work-table-1", "work-table-2")).startswith("table/work-table-2.yaml")
    assert not Path("runs").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_call_keeps_the_finished_cells_and_the_next_goes_on(
    tmp_path: Path, number: signal.Signals
) -> None:
    entries, marker, log = tmp_path / "entries", tmp_path / "marker", tmp_path / "log"
    write_entry(entries, "first", squares_entry(parameters={"upto": 2, "log": str(tmp_path / "squares")}))
    write_entry(
        entries, "slow", value_entry("slow", "values", "sum", parameters={"log": str(log), "marker": str(marker)})
    )
    script = (
        "import sys, pathlib, experiments.reproduction.entry as entry; from experiments.cli import main; "
        f"entry.SHIPPED = pathlib.Path({str(entries)!r}); sys.exit(main(['table', 'all', '--format', 'csv']))"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", script]
    process = subprocess.Popen(command, cwd=tmp_path, env=environment, text=True, stdout=-1, stderr=-1)
    ends = time.monotonic() + 60
    while (not log.exists() or len(log.read_text().split()) < 2) and time.monotonic() < ends:
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    told = "bayplan: interrupted: what was computed is kept, the same command goes on from there\n"
    known = number == signal.SIGINT
    assert (process.returncode, out, err) == ((130, "", told) if known else (-number, "", ""))
    marker.touch()
    done = subprocess.run(command, cwd=tmp_path, env=environment, text=True, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert log.read_text().split() == ["0", "1", "1", "2"]
    assert (tmp_path / "squares").read_text().split() == ["0", "1"]
    assert done.stdout.count("\n") == 1 + 5 + 1
