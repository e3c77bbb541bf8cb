"""Tables show each figure once, in its unit, and never cut one."""

import io

import pytest
from rich.console import Console

from experiments.figures import Figures, figures_of
from experiments.tables import Table, policy_tables, sweep_tables, to_markdown, to_terminal, to_text
from solvers.ir import Row

MIB = 2**20
SOLVED = Figures(
    budget_bytes=100 * MIB,
    peak_bytes=99 * MIB,
    step_us=8000.0,
    unlimited_us=7000.0,
    stall_us=700.0,
    predicted_us=8040.0,
    deviation=-0.005,
    equal_losses=True,
    equal_parameters=True,
    equal_gradients=True,
    status="feasible",
    engine="HiGHS",
    objective_us=8040,
    bound_us=7936.5,
    base_us=7000,
    gap=0.0129,
    overhead_gap=0.1,
    solve_time_s=1.25,
    least_budget_bytes=50 * MIB,
    swapped_bytes=40 * MIB,
    noise_stall_us=770.0,
    noise_worst_us=840.0,
    other_stall_us=1400.0,
)


def row(policy: str, figures: Figures, outcome: str = "ok", **asked: object) -> Row:
    return Row(
        experiment="e",
        asked={"policy": policy, **asked},
        outcome=outcome,  # type: ignore[arg-type]
        figures=figures.to_raw(),
        provenance="",
        commit=None,
        seed=0,
    )


ROWS = [
    row("unlimited", Figures(peak_bytes=180 * MIB, step_us=7000.0, unlimited_us=7000.0, equal_losses=True)),
    row("none", Figures(budget_bytes=100 * MIB, peak_bytes=100 * MIB), "out-of-memory"),
    row("milp-swap", SOLVED),
]


def test_figures_survive_their_row() -> None:
    assert figures_of(SOLVED.to_raw()) == SOLVED
    assert SOLVED.to_raw()["ratio"] == pytest.approx(8 / 7)
    assert SOLVED.to_raw()["stall_share"] == pytest.approx(0.1)
    assert figures_of({**SOLVED.to_raw(), "of_a_later_version": 1}) == SOLVED
    assert Figures().to_raw() == {}
    assert Figures(step_us=1.0, gap=0.5).joined(Figures(step_us=2.0)) == Figures(step_us=2.0, gap=0.5)


def test_one_row_for_each_policy_with_its_figures() -> None:
    happened, answered, elsewhere = policy_tables(ROWS)
    assert [line[0] for line in happened.body] == ["unlimited", "none", "milp-swap"]
    assert happened.body[2] == ("milp-swap", "ok", "99.0", "99.0 %", "8.000", "1.143", "10.0 %", "yes", "-0.50 %")
    assert happened.body[1] == ("none", "out-of-memory", "–", "–", "–", "–", "–", "–", "–")
    (line,) = answered.body
    assert line[:8] == ("milp-swap", "feasible", "8,040", "7,936", "1.29 %", "10.0 %", "1.250", "40.0")
    assert elsewhere.body == (("milp-swap", "0.700", "+0.070 (+1.0 %)", "+0.140 (+2.0 %)", "+0.700 (+10.0 %)"),)


def test_launches_stand_beside_the_stall_where_they_are_known() -> None:
    known = Figures.joined(SOLVED, Figures(launch_us=300.0))
    happened = policy_tables([ROWS[0], row("milp-swap", known)])[0]
    place = happened.head.index("launches")
    assert happened.head[place - 1] == "stall"
    assert [line[place] for line in happened.body] == ["–", "+4.3 %"]
    assert happened.body[1][place - 2 : place + 1] == ("1.143", "10.0 %", "+4.3 %")
    assert "step = unlimited + stall + launches" in happened.note
    assert "launches" not in policy_tables(ROWS)[0].head


def test_allocators_that_hold_segments_are_named() -> None:
    on_segments = [row("milp-swap", SOLVED, allocator="caching")]
    assert "Allocator: caching (modelled: budgets and least ones are of segments" in policy_tables(on_segments)[0].note
    assert "Allocator" not in policy_tables(ROWS)[0].note


@pytest.mark.parametrize(
    ("same", "shown"), [((True, True, True), "yes"), ((True, False, True), "losses only"), ((False, True, True), "no")]
)
def test_equality_is_never_claimed_by_halves(same: tuple[bool, bool, bool], shown: str) -> None:
    losses, parameters, gradients = same
    figures = Figures(equal_losses=losses, equal_parameters=parameters, equal_gradients=gradients)
    (table,) = policy_tables([row("p", figures)])
    assert table.body[0][table.head.index("bit-equal")] == shown


def test_a_terminal_too_narrow_cuts_nothing() -> None:
    console = Console(file=io.StringIO(), width=40)
    to_terminal(console, policy_tables(ROWS))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "…" not in text.replace("[bold]…", "")
    assert "out-of-memory" in text and "-0.50 %" in text


def test_markdown_has_a_line_for_each_row_and_escapes_bars() -> None:
    text = to_markdown([Table("T", ("a", "b"), (("x|y", "1"),), "Note.")])
    assert text == "**T**\n\n| a | b |\n|---|---:|\n| x\\|y | 1 |\n\nNote.\n"


def test_text_holds_every_cell() -> None:
    text = to_text(policy_tables(ROWS))
    assert all(cell in text for table in policy_tables(ROWS) for line in table.body for cell in line)


def test_a_sweep_shows_cells_and_a_grid() -> None:
    rows = [
        row("milp-swap", SOLVED, budget=0.5, link=8),
        row("milp-swap", Figures(status="infeasible", least_budget_bytes=50 * MIB), "infeasible", budget=0.4, link=8),
        row("milp-swap", SOLVED, budget=0.5, link=16),
        row("unlimited", Figures(step_us=1.0), budget=0.5, link=16),
        row("all", Figures(), "error", budget=0.4, link=16),
    ]
    cells, grid = sweep_tables(rows, ["budget", "link"], "Monotone.")
    assert [line[2] for line in cells.body] == ["milp-swap", "milp-swap", "milp-swap", "all"]
    assert cells.note.endswith("Monotone.")
    assert grid.head == ("budget \\ link", "8", "16")
    assert grid.body == (("0.5", "1.143", "1.143"), ("0.4", "needs 50.0 MiB", "–"))


def test_a_step_that_was_another_one_is_not_compared_with_its_plan() -> None:
    other = Figures.joined(SOLVED, Figures(launch_us=-3500.0, as_planned=False))
    happened = policy_tables([row("unlimited", Figures(step_us=7000.0)), row("greedy-swap", other)])[0]
    shown = dict(zip(happened.head, happened.body[1], strict=True))
    assert shown["outcome"] == "ok, not as planned"
    assert shown["launches"] == shown["vs predicted"] == "–"


def test_there_is_no_minus_zero() -> None:
    near = Figures.joined(SOLVED, Figures(deviation=-0.00001))
    happened = policy_tables([row("unlimited", Figures(step_us=7000.0)), row("greedy-swap", near)])[0]
    assert dict(zip(happened.head, happened.body[1], strict=True))["vs predicted"] == "+0.00 %"
