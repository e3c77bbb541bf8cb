"""Pages of every kind of experiment, of folders that are not whole, and of such as wish their reader ill."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from random import Random

import pytest

from experiments.reporting import page as pages
from experiments.reporting.keep import keep_page
from experiments.reporting.page import page_of
from experiments.rows import read_rows, rows_to_text
from experiments.run_directory import CONFIG, ROWS, SWEEP, RunDirectory
from solvers.ir import InvalidInput
from tests.experiments.reporting.folders import (
    KEPT,
    NAME,
    RESULTS,
    kept_run,
    kept_sweep,
    planned_run,
    write_cell,
    write_record,
)

PLAIN = "so they are shown as they are"
"""What stands below rows that are none of this version's."""
TAGS = {
    "html", "head", "meta", "title", "style", "body", "section", "h1", "h2", "h3", "p", "dl", "dt", "dd", "ul", "li",
    "div", "span", "b", "i", "a", "table", "thead", "tbody", "tr", "th", "td", "figure", "figcaption", "details",
    "summary", "pre", "svg", "path", "rect",
}  # fmt: skip


class Tags(HTMLParser):
    """What a browser would make of a page: every tag with its attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """One tag."""
        self.found.append((tag, dict(attrs)))


def require_harmless(page: str) -> None:
    """No script, no request to anywhere, and no place from which one could come."""
    assert len(page.encode()) < 2_000_000
    tags = Tags(page).found
    assert {tag for tag, _ in tags} <= TAGS
    assert not [name for _, attributes in tags for name in attributes if name.startswith("on")]
    assert "default-src 'none'" in page and "url(" not in page and "@import" not in page
    for _, attributes in tags:
        assert not {"src", "srcset", "action", "xlink:href"} & set(attributes)
        place = attributes.get("href")
        assert place is None or re.fullmatch(r"[\w.~%-][\w./~%-]*", place), place


@pytest.mark.parametrize("name", KEPT)
def test_every_kind_has_a_page_with_its_own_tables(tmp_path: Path, name: str) -> None:
    folder = kept_run(tmp_path / "run", name)
    page = page_of(folder)
    require_harmless(page)
    assert PLAIN not in page and page == page_of(folder)
    rows = read_rows(folder / ROWS)
    for policy in {str(row.asked["policy"]) for row in rows if "policy" in row.asked and KEPT[name] != "elastic"}:
        assert policy in page
    assert rows[0].provenance.replace("'", "&#39;") in page
    assert f'<span class="how {HOW.get(name, "sim-executed")}">' in page


def test_reasons_stalls_plans_and_memory_stand_on_the_page(tmp_path: Path) -> None:
    page = page_of(planned_run(tmp_path / "run"))
    require_harmless(page)
    assert '<b>none</b> <span class="outcome bad">out-of-memory</span>: sim out of memory' in page
    assert "<td>60.000</td><td>10.000</td><td>10.000</td><td>7.250</td><td>87.250</td>" in page
    assert "<td>80</td><td>80</td>" in page and "<td>no violations</td>" in page  # claimed, and recomputed
    assert "Memory over one step, beside the budget" in page and "Training loss" in page
    assert 'href="reports/greedy-swap.executed.json"' in page


def test_a_plan_that_lies_is_told(tmp_path: Path) -> None:
    folder = planned_run(tmp_path / "run")
    place = folder / "plans" / f"{NAME}.json"
    place.write_text(json.dumps(json.loads(place.read_text()) | {"objective_us": 61}))
    assert re.search(r"<td[^>]*>violations: 1, as objective_us", page_of(folder))


def test_the_papers_figures_stand_beside_ours_and_are_named_so(tmp_path: Path) -> None:
    page = page_of(kept_run(tmp_path / "run", "ft_32"))
    told = r'Beside the paper <span class="how paper">paper</span>.*<td>oobleck</td>.*<td>1.229</td>'
    assert re.search(told, page, re.DOTALL)


def test_a_sweep_is_a_table_of_colours_and_curves(tmp_path: Path) -> None:
    page = page_of(kept_sweep(tmp_path / "sweep"))
    require_harmless(page)
    assert "0 of 28 cells are done" in page and page.count("rgba(76, 157, 217") > 40
    assert "Step time over unlimited over budget / peak" in page
    assert re.search(r"<td>0.3</td><td>32</td><td>infeasible</td>", page)


def test_a_sweep_that_was_killed_is_told_from_its_cells(tmp_path: Path) -> None:
    """Nobody gathered its rows; a cell that lies elsewhere is none."""
    rows = [row for row in read_rows(RESULTS / "demo" / ROWS) if row.asked["policy"] == "milp-swap"]
    for number in (1, 2):
        write_cell(tmp_path / "cells" / str(number), rows_to_text(rows), f"- steps={number}\n")
    write_record(tmp_path, "training", ["cells/1", "cells/2", "cells/3", "../../etc"], ["steps"])
    page = page_of(tmp_path)
    assert "2 of 3 cells; 2 rows: 2 ok" in page and "../../etc is left out: it leads out of the folder" in page
    assert "<td>1</td><td>milp-swap</td>" in page and "<td>2</td><td>milp-swap</td>" in page
    assert "cells/3, without rows" in page


HOW = {
    "lynx": "simulated", "ft_32": "simulated", "ft_month": "simulated", "elastic": "executed",
    "protrain": "sim-executed and by shapes",
}  # fmt: skip
"""How kept rows were obtained, as README's Results say it; all others: sim-executed."""
EVIL = "</td><script>alert(1)</script><img src=x onerror=alert(2)>\"'>{{ 7 * 7 }}\x1b[31m\u202e"


def test_nothing_in_a_folder_becomes_part_of_the_page(tmp_path: Path) -> None:
    folder = planned_run(tmp_path / "run")
    rows = [json.loads(line) for line in (folder / ROWS).read_text().splitlines()]
    for row in rows:
        row |= {"reason": EVIL, "provenance": EVIL, "commit": EVIL, "experiment": EVIL}
        row["asked"]["policy"] += EVIL
        row["figures"]["engine"] = EVIL
    (folder / ROWS).write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / CONFIG).write_text(f"kind: training\nname: {json.dumps(EVIL)}\nhardware: {json.dumps(EVIL)}\n")
    for place in (folder / "reports").glob("*.json"):
        raw = json.loads(place.read_text()) | {"source": EVIL, "name": EVIL}
        raw["spans"][0]["lane"], raw["stall_us"] = f"0.{EVIL}", {EVIL: 20.0}
        (place.parent / f"<b onload=x>{place.name}").write_text(json.dumps(raw))
    (folder / "javascript:alert(1)").write_text("x")
    (folder / "machine.json").write_text(json.dumps({EVIL: EVIL}))
    page = page_of(folder)
    require_harmless(page)
    assert "49" not in re.findall(r"\{\{.*?\}\}|>49<", page) and "{{ 7 * 7 }}" in page
    assert "\x1b" not in page and "\u202e" not in page and "\\x1b" in page
    assert 'href="javascript%3Aalert%281%29"' in page


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        (None, "", "holds none of config.yaml, rows.jsonl and sweep.json"),
        (ROWS, "{", "rows.jsonl line 1 is not valid JSON"),
        (ROWS, '{"format": "bayplan-row/2"}', "rows.jsonl line 1"),
        (ROWS, "\udcff", "rows.jsonl"),
    ],
)
def test_what_is_no_run_is_refused_in_a_sentence(tmp_path: Path, name: str | None, text: str, sentence: str) -> None:
    if name is not None:
        (tmp_path / name).write_text(text, errors="surrogateescape")
    with pytest.raises(InvalidInput, match=re.escape(sentence)):
        page_of(tmp_path)
    with pytest.raises(InvalidInput, match="is no folder"):
        page_of(tmp_path / "nowhere")


def test_what_is_not_whole_is_told_and_the_rest_is_shown(tmp_path: Path) -> None:
    folder = planned_run(tmp_path / "run")
    (folder / "reports" / f"{NAME}.executed.json").write_text('{"format": "bayplan-rep')
    (folder / "graph.json").write_text("[]")
    (folder / "plans" / "other.json").write_text("{}")
    (folder / CONFIG).write_bytes(b"\xff\xfe")
    page = page_of(folder)
    assert page.count("<li>not drawn:") == 1 and "simulated</span>" in page
    assert "graph.json" in page and "<td>other</td>" in page
    (folder / ROWS).write_text("")
    (folder / SWEEP).write_text("{garbage")
    page = page_of(folder)
    assert "rows.jsonl holds no row, though plans and reports of the run are there" in page
    assert "sweep.json is no record of a sweep that can be read: cells are not listed" in page
    (folder / ROWS).unlink()
    assert "There is no row yet" in page_of(folder)


def test_rows_of_another_version_are_shown_as_they_are(tmp_path: Path) -> None:
    folder = kept_run(tmp_path / "run", "lynx")
    rows = [json.loads(line) for line in (folder / ROWS).read_text().splitlines()]
    for row in rows:
        row["figures"] = {"speed": 3.5, "parts": [1]}
    (folder / ROWS).write_text("".join(json.dumps(row) + "\n" for row in rows))
    page = page_of(folder)
    assert PLAIN in page and "<td>3.5</td>" in page


WEIRD: list[object] = [
    None,
    -1,
    0,
    10**400,
    1e308,
    "",
    "word",
    [],
    [None],
    [-1, "x"],
    {},
    {"mean": "x"},
    {"training": {}},
    True,
]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", KEPT)
def test_whatever_rows_hold_there_is_a_page(tmp_path: Path, name: str, seed: int) -> None:
    """Figures and what was asked, each replaced by something that nobody expects."""
    folder, chosen = kept_run(tmp_path / "run", name), Random(seed)
    rows = [json.loads(line) for line in (folder / ROWS).read_text().splitlines()][:4]
    for row in rows:
        for part in ("figures", "asked"):
            row[part] = {key: chosen.choice([value, *WEIRD]) for key, value in row[part].items()}
    (folder / ROWS).write_text("".join(json.dumps(row) + "\n" for row in rows))
    require_harmless(page_of(folder))
    write_record(folder, KEPT[name], [], ["steps"])
    require_harmless(page_of(folder))


def test_a_page_that_would_be_too_large_is_drawn_coarser_and_then_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = planned_run(tmp_path / "run")
    whole = page_of(folder)
    monkeypatch.setattr(pages, "MOST_BYTES", len(whole.encode()))
    page = page_of(folder)
    assert len(page) < len(whole) and "Pictures are left out" in page
    monkeypatch.setattr(pages, "MOST_BYTES", 1000)
    with pytest.raises(InvalidInput, match="would not stay below 1000 bytes"):
        page_of(folder)


def test_a_fault_of_the_page_takes_nothing_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = kept_run(tmp_path / "run", "demo")
    keep_page(RunDirectory(folder))
    page = (folder / "report.html").read_text()
    assert "<dt>machine</dt><dd>processor " in page and page == page_of(folder)
    (folder / ROWS).write_text("{")
    keep_page(RunDirectory(folder))
    assert "could not be made (InvalidInput: " in capsys.readouterr().err
    assert (folder / "report.html").read_text() == page
    monkeypatch.setenv("BAYPLAN_TRACEBACK", "1")
    with pytest.raises(InvalidInput):
        keep_page(RunDirectory(folder))
