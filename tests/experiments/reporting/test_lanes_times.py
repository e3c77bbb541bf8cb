"""Planned beside executed on one axis, and accounts that add up to their steps to the nanosecond."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.reporting.folder import Recorded, read_folder
from experiments.reporting.lanes import lanes_of, steps_of
from experiments.reporting.times import account_table, accounts_of, stacks_of
from solvers.ir import Report, Row
from solvers.ir.report import Span
from tests.experiments.reporting.folders import NAME, kept_run, planned_run


def row(**figures: object) -> Row:
    return Row(
        experiment="e", asked={"policy": "one"}, outcome="ok", figures=figures, provenance="p", commit=None, seed=0
    )


def span(lane: str, label: str, start: float, end: float) -> Span:
    return Span(action=0, lane=lane, label=label, start_us=start, end_us=end)


def test_planned_stands_above_executed_on_one_axis(tmp_path: Path) -> None:
    found = read_folder(planned_run(tmp_path / "run"))
    lanes = lanes_of(steps_of(found.reports, found.graph, found.rows))
    assert lanes is not None
    planned, executed = lanes.panels
    assert (planned.title, planned.how, executed.title, executed.how) == (NAME, "simulated", NAME, "executed")
    assert executed.end == 100.0
    assert planned.end == 100 * 80 / 87.25
    assert [strip.name for strip in planned.strips] == ["compute", "in", "out"]
    assert "stall" in lanes.legend  # the gaps between operators are waits, and drawn


def test_the_step_is_its_base_its_waits_and_its_launches(tmp_path: Path) -> None:
    """By hand (`tiny_problem`): base 60, op 2 waits 10 µs for memory, op 5 waits 10 µs for data."""
    found = read_folder(planned_run(tmp_path / "run"))
    table = account_table(accounts_of(steps_of(found.reports, found.graph, found.rows)))
    assert table is not None
    head = ("of", "how", "base", "waits for data", "waits for memory", "launches", "together")
    assert table.head == head
    assert table.body[1] == (NAME, "executed", "60.000", "10.000", "10.000", "7.250", "87.250")


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e6), st.sampled_from(["mm", "forward"])), max_size=30))
def test_lanes_that_tell_no_base_add_up_too(drawn: list[tuple[float, float, str]]) -> None:
    spans = tuple(span("stream 7", label, min(one, other), max(one, other)) for one, other, label in drawn)
    report = Report(name="r", how="executed", source="s", makespan_us=1e6, spans=spans)
    steps = steps_of([Recorded("one", "executed", report)], None, [row()])
    for account in accounts_of(steps):
        assert account.total_ns == 10**9
        assert all(part.ns >= 0 for part in account.parts)


def test_of_several_steps_the_last_one_is_shown() -> None:
    spans = (span("0.compute", "forward", 0, 40), span("0.compute", "forward", 60, 100))
    report = Report(name="r", how="executed", source="s", makespan_us=100, spans=spans)
    (step,) = steps_of([Recorded("one-rank-0", "executed", report)], None, [row(step_us=50.0), row()])
    assert step.begin_us == 50.0
    (account,) = accounts_of([step])
    assert [(part.name, part.ns) for part in account.parts] == [("forward", 40_000), ("idles", 10_000)]


def test_stages_of_a_pipeline_are_told_one_by_one_and_drawn_as_their_mean() -> None:
    spans = (span("0.compute", "forward 0", 0, 40), span("1.compute", "recompute 0", 40, 100))
    report = Report(name="r", how="simulated", source="s", makespan_us=100, base_us=90, spans=spans)
    accounts = accounts_of(steps_of([Recorded("one", "planned", report)], None, []))
    assert [account.name for account in accounts] == ["one: stage 0", "one: stage 1"]
    (stack,) = stacks_of(accounts)
    assert [(part.name, part.width) for part in stack.segments] == [
        ("forward", 20.0), ("idles", 50.0), ("recomputes", 30.0),
    ]  # fmt: skip


def test_shares_are_of_what_is_drawn_and_no_cause_hides_the_base() -> None:
    stalls = {"base": 30.0}
    report = Report(
        name="r", how="executed", source="s", makespan_us=120, base_us=100, launch_us=-10, stall_us=stalls,
        spans=(span("compute", "mm", 0, 120),),
    )  # fmt: skip
    accounts = accounts_of(steps_of([Recorded("one", "executed", report)], None, []))
    table = account_table(accounts)
    assert table is not None and table.body == (("one", "executed", "100", "30", "-10", "120"),)
    (stack,) = stacks_of(accounts)
    assert [part.figure for part in stack.segments] == ["76.9%", "23.1%"]
    assert sum(part.width for part in stack.segments) == pytest.approx(100)
    assert stack.total == "0.120 ms, launches -0.010 ms"


def test_a_run_without_reports_has_neither(tmp_path: Path) -> None:
    found = read_folder(kept_run(tmp_path / "run", "demo"))
    assert lanes_of(steps_of(found.reports, found.graph, found.rows)) is None
    assert account_table([]) is None and stacks_of([]) == ()
