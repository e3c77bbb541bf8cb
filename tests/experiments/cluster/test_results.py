"""The results that are kept: their tables are their rows', and their rows keep what the README says of them."""

from pathlib import Path

import pytest

from experiments.cluster.compare import tables_of
from experiments.cluster.settings import read_cluster_settings
from experiments.cluster.tables import cell_tables
from experiments.rows import read_rows
from experiments.tables import to_markdown
from solvers.ir import Row

RESULTS = Path(__file__).resolve().parents[3] / "experiments" / "results"
LIVED = ["ft_32", "ft_month"]


def rows_of(name: str) -> list[Row]:
    return read_rows(RESULTS / name / "rows.jsonl")


@pytest.mark.parametrize("name", LIVED)
def test_tables_of_lives_are_what_the_rows_say(name: str) -> None:
    settings = read_cluster_settings([f"experiment={name}"]).settings
    assert to_markdown(tables_of(settings, rows_of(name))) == (RESULTS / name / "table.md").read_text()
    assert {row.asked["policy"] for row in rows_of(name)} == set(settings.policies)
    assert {row.asked["seeds"] for row in rows_of(name)} == {settings.seeds}


def test_the_sweeps_table_is_what_its_rows_say() -> None:
    rows = rows_of("ft_scale")
    assert to_markdown(cell_tables(rows, ["grid", "lost", "head"])) == (RESULTS / "ft_scale" / "table.md").read_text()
    assert len(rows) == 2 * 7 * 3 * 2


@pytest.mark.parametrize("name", [*LIVED, "ft_scale"])
def test_a_result_states_its_commit(name: str) -> None:
    (commit,) = {row.commit for row in rows_of(name)}
    assert commit is not None and not commit.endswith("+")  # nothing uncommitted took part
    assert commit in (RESULTS / name / "README.md").read_text()


def test_a_hundred_lives_show_what_the_readme_says() -> None:
    found = {row.asked["policy"]: row.figures for row in rows_of("ft_32")}
    assert found["chameleon"]["samples_per_s"]["count"] == 100
    assert 1.0 < found["oobleck"]["first_over"]["low"] < found["oobleck"]["first_over"]["high"] < 1.1
    assert 1.0 < found["recycle"]["first_over"]["low"] < 1.1
    assert found["always-replan"]["first_over"]["mean"] == pytest.approx(1.0, abs=1e-3)
    assert found["bayplan"]["first_over"]["high"] < 0.96


def test_the_exact_planner_is_never_behind() -> None:
    cells: dict[tuple[object, ...], dict[str, Row]] = {}
    for row in rows_of("ft_scale"):
        key = tuple(row.asked[axis] for axis in ("grid", "lost", "head"))
        cells.setdefault(key, {})[row.asked["policy"]] = row
    for both in cells.values():
        paper, exact = both["algorithm1"].figures, both["exact-replan"].figures
        assert both["algorithm1"].outcome == both["exact-replan"].outcome
        if exact["objective_us"] is not None:
            assert exact["objective_us"] <= paper["objective_us"]
            assert exact["gap"] == 0
