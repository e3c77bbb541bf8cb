"""The results that are kept: tables are what rows say, every bit is equal, and who does what as was asked."""

import json
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from experiments.elastic.log import episodes_of, read_events
from experiments.elastic.outcomes import is_as_promised, tables_of
from experiments.elastic.recovery import table_of
from experiments.elastic.rivals.page import page
from experiments.rows import read_rows
from experiments.tables import to_markdown
from tests.runtime.elastic.soak import MOMENTS, ROLES, TIMEOUT_S
from tests.runtime.elastic.soak import table as soak_table
from tests.runtime.elastic.test_soak import SURE

RESULTS = Path(__file__).parents[3] / "experiments" / "results" / "elastic"
README = (RESULTS / "README.md").read_text()
TEXT = " ".join(README.split())
ROOM = (Path(__file__).parents[3] / "runtime" / "elastic" / "README.md").read_text()


def test_eight_seven_six_seven_eight_with_all_bits_equal() -> None:
    (row,) = read_rows(RESULTS / "rows.jsonl")
    assert is_as_promised(row) and row.figures["equal_losses"] and row.figures["equal_parameters"]
    assert row.figures["nodes"] == [8, 7, 6, 7, 8]
    assert len(row.figures["losses"]) == row.asked["steps"]
    assert to_markdown(tables_of(row)) == (RESULTS / "table.md").read_text()


def test_the_picture_is_that_of_the_kept_events() -> None:
    episodes = episodes_of(read_events(RESULTS))
    assert [[one.how for one in episode.failures] for episode in episodes] == [["kill"], ["stop"], [], []]
    text = (RESULTS / "recoveries.svg").read_text()
    assert ElementTree.fromstring(text).tag.endswith("svg")
    assert "![what each node did in four recoveries](recoveries.svg)" in README


def test_rivals_lose_more_and_the_page_says_what_rows_say() -> None:
    rows = {str(row.asked["policy"]): row for row in read_rows(RESULTS / "rivals.jsonl")}
    assert set(rows) == {"bayplan", "torchrun", "torchft"}
    assert page(list(rows.values())) == (RESULTS / "rivals.md").read_text()
    ours, *others = (sum(one["lost_us"] for one in row.figures["failures"]) for row in rows.values())
    assert all(ours < other for other in others)
    assert [one["steps_redone"] for one in rows["bayplan"].figures["failures"]] == [0, 0]
    assert rows["bayplan"].figures["equal_losses"] and not rows["torchft"].figures["equal_losses"]


def test_the_cost_of_a_recovery_is_what_its_row_says() -> None:
    (row,) = read_rows(RESULTS / "recovery.jsonl")
    assert row.asked["nodes"] == 8 and row.figures["equal_replicas"]
    assert to_markdown([table_of(row)]) == (RESULTS / "recovery.md").read_text()


def test_what_the_page_says_of_the_soak_is_what_its_file_says() -> None:
    """At least 200 failures, of a first, an inner and a last stage at each moment, and none of them went wrong."""
    kept = json.loads((RESULTS / "soak.json").read_text())
    assert kept["wrong"] == {}
    counts = Counter({(one["moment"], one["role"]): one["count"] for one in kept["counts"]})
    assert counts.total() >= 200
    assert not SURE - counts.keys() and "transfer" in {moment for moment, _ in counts}
    assert (
        soak_table(counts).splitlines()[-1] == f"| all | {' | '.join(by_stage(counts, MOMENTS))} | {counts.total()} |"
    )
    for moment in MOMENTS:
        assert f"| {moment} | {' | '.join(by_stage(counts, [moment])[:3])} |" in README
    assert f"| all | {' | '.join(by_stage(counts, MOMENTS)[:3])} | {counts.total()} |" in README
    totals_s = sorted(us / 1e6 for us in kept["totals_us"])
    first, end = kept["seeds"]
    assert f"{counts.total()} failures in {'twenty' if end - first == 20 else end - first} trainings" in TEXT
    assert f"Of {len(totals_s)} recoveries and joins that were timed, the median took {median(totals_s):.2f} s" in TEXT
    assert ", ".join(f"{one:.1f}" for one in totals_s[-5:-1]) + f" and {totals_s[-1]:.1f} s" in TEXT
    assert totals_s[-1] < TIMEOUT_S and kept["commit"] in README
    assert f"{counts.total()} failures of a soak" in " ".join(ROOM.split())


def by_stage(counts: Counter[tuple[str, str]], moments: Sequence[str]) -> list[str]:
    """How many failed, in the columns of the table; nobody stood by or had a pipeline alone."""
    return [str(sum(counts[moment, role] for moment in moments)) for role in ROLES]


def test_every_commit_is_on_the_page() -> None:
    names = ("rows.jsonl", "rivals.jsonl", "recovery.jsonl")
    for commit in {row.commit for name in names for row in read_rows(RESULTS / name)}:
        assert commit is not None and not commit.endswith("+")
        assert commit in README
