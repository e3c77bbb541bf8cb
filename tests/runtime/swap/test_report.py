"""What a session tells of itself."""

import json
from dataclasses import replace

from runtime.swap.portfolio import PolicyChoice
from runtime.swap.report import PolicyResult, SessionCounts, SessionReport, unseen

REPORT = SessionReport(
    device="sim:0",
    budget_bytes=1 << 20,
    stage="Stable",
    iterations=12,
    generations=2,
    regenerations=1,
    returns=3,
    policies=(
        PolicyResult(choice=PolicyChoice(), generation=1, swaps=3, bytes=2048, duration_us=70.0, kept=True),
        PolicyResult(choice=PolicyChoice(solver="milp-swap"), generation=1, reason="not within its limits"),
    ),
    counts=SessionCounts(swapped_out=9, swapped_in=8, in_time=6, fetched=1, cancelled=1, passive=2),
    peak_bytes=1 << 20,
    host_peak_bytes=4096,
    unswapped_peak_bytes=2 << 20,
    unplanned_us=99.5,
    remarks=("something",),
)


def test_counts_add_up_by_name() -> None:
    total = SessionCounts(fetched=1, passive_bytes=5) + SessionCounts(fetched=2, cancelled=4)
    assert total == SessionCounts(fetched=3, cancelled=4, passive_bytes=5)
    assert total.fallbacks == 7


def test_people_read_what_matters() -> None:
    text = str(REPORT)
    for part in ("12 iterations, now Stable", "2 on demand", "* greedy-swap: 3 swaps", "not within its", "something"):
        assert part in text
    assert "EXCEEDED" not in text
    assert "EXCEEDED" in str(replace(REPORT, peak_bytes=(1 << 20) + 1))


def test_programs_read_json() -> None:
    told = json.loads(REPORT.json())
    assert told["counts"]["swapped_out"] == 9
    assert told["policies"][1]["choice"]["solver"] == "milp-swap"
    assert told["remarks"] == ["something"]


def test_a_session_that_ended_without_an_iteration_says_so() -> None:
    assert unseen(0, closed=False) == unseen(3, closed=True) == ()
    (remark,) = unseen(0, closed=True)
    assert remark.startswith("no optimizer stepped")
