"""Folders that wish their reader ill, or that broke: what is left out is named, and all else is shown."""

import json
from pathlib import Path

import pytest

from experiments.reporting.page import page_of
from experiments.rows import rows_from_text, rows_to_text
from experiments.run_directory import CONFIG, ROWS
from solvers.ir import InvalidInput, Row
from tests.experiments.reporting.folders import NAME, kept_run, planned_run, write_cell, write_record
from tests.experiments.reporting.test_lanes_times import row

SECRET = "nobody-else-may-read-this"
ALIASES = "- &a [x, x]\n- &b [*a, *a]\n- [*b, *b]\n"


def rows_of(*rows: Row) -> str:
    return rows_to_text(rows)


@pytest.mark.parametrize("name", ["ft_32", "lynx", "ft_month"])
def test_simulated_rows_are_never_called_executed(tmp_path: Path, name: str) -> None:
    folder = kept_run(tmp_path / "run", name)
    whole = page_of(folder).partition("<h2>Settings")[0]
    (folder / CONFIG).unlink()
    page = page_of(folder)
    assert '<span class="how simulated">' in page and "simulated: nothing was executed" in page
    assert "executed</span>" not in page and len(page) > len(whole) / 2


def test_rows_that_nobody_knows_are_not_called_executed(tmp_path: Path) -> None:
    (tmp_path / ROWS).write_text(rows_of(row(speed=3.5)))
    page = page_of(tmp_path)
    assert "not known: see the provenance of each row" in page and "<td>3.5</td>" in page
    assert "does not say what kind" in page and "executed</span>" not in page


@pytest.mark.parametrize("name", [CONFIG, "machine.json", f"plans/{NAME}.json", f"reports/{NAME}.simulated.json",
    "graph.json", "losses/milp-swap.csv", "plans", "reports", "losses"])  # fmt: skip
def test_a_link_out_of_the_folder_is_named_and_not_followed(tmp_path: Path, name: str) -> None:
    folder, outside = planned_run(tmp_path / "run"), tmp_path / "outside"
    place = folder / name
    if name == "losses":
        place.mkdir()
    if place.is_dir():
        place.rename(outside)
    else:
        place.parent.mkdir(exist_ok=True)
        text = place.read_text() if place.is_file() else f'{{"step": "{SECRET}"}}\nstep,loss\n1,2\n2,1.5\n'
        outside.write_text(text.replace("greedy-swap", SECRET))
        place.unlink(missing_ok=True)
    place.symlink_to(outside)
    if name == "losses":
        outside.mkdir(exist_ok=True)
        (outside / "milp-swap.csv").write_text("step,loss\n1,2\n2,1.5\n")
    page = page_of(folder)
    assert "leads out of the folder</li>" in page and "<td>milp-swap</td>" in page
    assert SECRET not in page


def test_rows_are_not_read_through_a_link(tmp_path: Path) -> None:
    folder = kept_run(tmp_path / "run", "demo")
    (folder / ROWS).rename(tmp_path / ROWS)
    (folder / ROWS).symlink_to(tmp_path / ROWS)
    page = page_of(folder)
    assert "rows.jsonl is left out: it leads out" in page and "milp-swap" not in page


def test_cells_are_inside_and_counted_once(tmp_path: Path) -> None:
    folder, outside = tmp_path / "sweep", tmp_path / "outside"
    write_cell(folder / "c", rows_of(row()), "- steps=1\n")
    write_cell(outside, rows_of(row()), "- steps=2\n")
    (folder / "link").symlink_to(outside)
    (folder / "loop").symlink_to("loop")
    names = ["c", "../sweep/c", "./c", ".", "link", "loop", "a\0b", "x" * 5000, str(outside)]
    write_record(folder, "training", names, ["steps"])
    page = page_of(folder)
    assert 'href="c/rows.jsonl"' in page and 'href=".' not in page
    assert page.count("is left out: it leads out of the folder") == 2
    assert "1 of 2 cells; 1 row: 1 ok" in page and "it is no name of a file" in page


@pytest.mark.parametrize("mark", ['{"rows": 1e999}', "[]", "{", '{"rows": "x"}'])
def test_a_mark_that_means_nothing_is_a_remark(tmp_path: Path, mark: str) -> None:
    for name in ("c", "d"):
        write_cell(tmp_path / name, rows_of(row()), "- steps=1\n")
    write_record(tmp_path, "training", ["c", "d"], ["steps"])
    (tmp_path / "c" / "done").write_text(mark)
    page = page_of(tmp_path)
    assert "c/done cannot be read" in page and "1 of 2 cells; 1 row" in page


@pytest.mark.parametrize("words", [ALIASES, "- steps=2020-13-45\n", "[" * 3000, "- steps=" + "1" * 5000])
def test_what_unfolds_or_means_nothing_is_not_asked(tmp_path: Path, words: str) -> None:
    write_cell(tmp_path / "c", rows_of(row(), row()), words)
    write_record(tmp_path, "training", ["c"], ["steps"])
    page = page_of(tmp_path)
    assert "what the cell c was asked cannot be read" in page and "2 rows: 2 ok" in page


def test_words_that_are_none_are_passed_over(tmp_path: Path) -> None:
    write_cell(tmp_path / "c", rows_of(row(), row()), "- [steps=1]\n- {a: 1}\n- steps=0x" + "f" * 5000 + "\n")
    write_record(tmp_path, "training", ["c"], ["steps"])
    assert "2 rows: 2 ok" in page_of(tmp_path)


@pytest.mark.parametrize("text", ["when: 2020-13-45\n", "n: " + "1" * 5000, f"a: {ALIASES!r}\nb: &x [1]\nc: *x\n"])
def test_a_config_that_cannot_be_read_is_a_remark(tmp_path: Path, text: str) -> None:
    folder = kept_run(tmp_path / "run", "demo")
    (folder / CONFIG).write_text(text)
    page = page_of(folder)
    assert "nothing is taken from it" in page and "<td>milp-swap</td>" in page


def test_endless_files_are_not_read(tmp_path: Path) -> None:
    folder = kept_run(tmp_path / "run", "demo")
    (folder / CONFIG).write_text("# x\n" * 300_000)
    assert "config.yaml is left out: it has 1.1 MiB" in page_of(folder)
    with (folder / ROWS).open("ab") as file:
        file.truncate(65 << 20)
    with pytest.raises(InvalidInput, match=r"rows\.jsonl is left out: it has 65\.0 MiB"):
        page_of(folder)


def test_plans_beyond_any_size_and_links_to_nowhere(tmp_path: Path) -> None:
    folder = planned_run(tmp_path / "run")
    place = folder / "plans" / f"{NAME}.json"
    place.write_text(json.dumps(json.loads(place.read_text()) | {"objective_us": 10**400}))
    (folder / "plans" / "nowhere.json").symlink_to(folder / "gone")
    page = page_of(folder)
    assert "not judged: it is no file of the folder" in page and f"<td>{NAME}</td>" in page


def test_long_texts_are_cut(tmp_path: Path) -> None:
    (tmp_path / ROWS).write_text(rows_of(Row(experiment="e" * 10**6, asked={"policy": "p" * 10**6}, outcome="error",
        figures={"x": 1.0}, provenance="p" * 10**6, commit=None, seed=0, reason="r" * 2_100_000)))  # fmt: skip
    page = page_of(tmp_path)
    assert "r … cut</li>" in page and len(page) < 100_000 and "Pictures are left out" not in page


def test_rows_with_separators_of_lines_in_their_words() -> None:
    told = row()
    told.asked["policy"] = "a\u2028b\u0085c"
    assert rows_from_text(rows_to_text([told, told])) == [told, told]


def test_losses_that_are_no_numbers_leave_the_others_drawn(tmp_path: Path) -> None:
    (tmp_path / ROWS).write_text(rows_of(row()))
    (tmp_path / "losses").mkdir()
    (tmp_path / "losses" / "one.csv").write_text("step,loss\n1,3.0\n2,nan\n3,2.0\n")
    page = page_of(tmp_path)
    assert "Training loss" in page and "1 of 3 losses of one are no finite numbers" in page


def test_a_trace_of_ones_own_has_nothing_beside_the_paper(tmp_path: Path) -> None:
    folder = kept_run(tmp_path / "run", "ft_32")
    assert "Beside the paper" in page_of(folder)
    rows = [json.loads(line) for line in (folder / ROWS).read_text().splitlines()]
    for one in rows:
        one["asked"]["trace"] = "mine.csv"
    (folder / ROWS).write_text("".join(json.dumps(one) + "\n" for one in rows))
    assert "Beside the paper" not in page_of(folder)
