"""`bayplan report`: the page made again from a run's folder, and nothing else changed."""

from pathlib import Path

import pytest

from tests.experiments.commands.console import call, refused
from tests.experiments.reporting.folders import kept_run


def contents(folder: Path) -> dict[str, bytes]:
    return {str(place): place.read_bytes() for place in folder.rglob("*") if place.is_file()}


def test_a_run_writes_its_page_and_the_command_the_same_again(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    words = ["experiment=lynx", "plots=false", "systems={full: full, bayplan: heu-pair/bound/cooldown}"]
    assert call("compare", *words, f"run_dir={folder}").code == 0
    before = contents(folder)
    page = (folder / "report.html").read_text()
    assert "What the judge says of the plans" in page or "no violations" in page
    outcome = call("report", folder)
    assert outcome.code == 0 and outcome.figure("written to") == str(folder / "report.html")
    assert contents(folder) == before


def test_the_page_goes_where_it_is_asked_for(tmp_path: Path) -> None:
    folder = kept_run(tmp_path / "run", "demo")
    before = contents(folder)
    assert call("report", folder, "--out", tmp_path / "page.html").code == 0
    page = (tmp_path / "page.html").read_text()
    assert 'href="run/rows.jsonl"' in page  # from where it lies
    streamed = call("report", folder, "--out", "-").out
    assert streamed.startswith("<!DOCTYPE html>") and "href=" not in streamed and "Links are left out" in streamed
    assert contents(folder) == before


@pytest.mark.parametrize("name", ["rows.jsonl", "config.yaml", "new.txt"])
def test_a_page_takes_no_place_of_what_the_run_left(tmp_path: Path, name: str) -> None:
    folder = kept_run(tmp_path / "run", "demo")
    before = contents(folder)
    assert "ends in .html" in refused(call("report", folder, "--out", folder / name))
    assert contents(folder) == before
    assert call("report", folder, "--out", folder / "another.html").code == 0


def test_what_cannot_be_told_is_refused_and_nothing_is_lost(tmp_path: Path) -> None:
    assert "holds none of config.yaml" in refused(call("report", tmp_path))
    folder = kept_run(tmp_path / "run", "demo")
    (folder / "report.html").write_text("an earlier page")
    (folder / "rows.jsonl").write_text('{"format": ')
    before = contents(folder)
    assert "rows.jsonl line 1 is not valid JSON" in refused(call("report", folder))
    assert contents(folder) == before
    assert "missing argument 'RUN_DIR'" in refused(call("report"))
    other = kept_run(tmp_path / "other", "demo")
    assert "lies in" in refused(call("report", other, "--out", tmp_path / "no" / "p.html"))


def test_a_place_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    folder = kept_run(tmp_path / "run", "demo")
    (folder / "report.html").mkdir()
    assert "report.html" in refused(call("report", folder))


@pytest.mark.parametrize("name", ["ft_32", "lynx"])
def test_pages_of_kept_rows(tmp_path: Path, name: str) -> None:
    assert call("report", kept_run(tmp_path / name, name)).code == 0
