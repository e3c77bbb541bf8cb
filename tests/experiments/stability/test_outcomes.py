"""Rows as tables: what came back in time, and the two choices, guard and features, side by side."""

from typing import Any

from experiments.stability.outcomes import tables_of
from experiments.stability.settings import Policy
from solvers.ir import Row

COUNTS = (
    "generations", "regenerations", "returns", "policies", "swapped_out", "in_time", "fallbacks", "unmatched",
    "passive", "relieved", "failed",
)  # fmt: skip


def row(policy: Policy, *, session: dict[str, int] | None = None, failed_at: int | None = None) -> Row:
    limited, whole = policy is not Policy.unlimited, failed_at is None
    figures: dict[str, Any] = {
        "steps": 40 if failed_at is None else failed_at - 1,
        "skipped": 0,
        "validations": 1,
        "peak_bytes": 2**20,
        **dict.fromkeys(("equal_losses", "equal_validations", "equal_parameters"), whole),
    }
    figures |= {} if session is None else {"session": dict.fromkeys(COUNTS, 0) | session}
    figures |= {} if failed_at is None else {"failed_at": failed_at}
    return Row(
        experiment="stability",
        asked={"policy": policy.value, "budget_bytes": 2**20 if limited else None},
        outcome="ok" if whole else "out-of-memory",
        figures=figures,
        provenance="",
        commit=None,
        seed=0,
    )


CELLS = [
    row(Policy.features, session={"in_time": 999, "fallbacks": 1}),
    row(Policy.index_guard, session={"in_time": 90, "fallbacks": 10}),
    row(Policy.features_alone, session={"in_time": 3, "fallbacks": 1}, failed_at=21),
    row(Policy.index, session={"in_time": 0, "fallbacks": 0}, failed_at=21),
]


def test_returns_in_time_are_a_share_of_all_that_came_back() -> None:
    (happened, *_) = tables_of([row(Policy.unlimited), row(Policy.none), *CELLS])
    shares = dict(zip([line[0] for line in happened.body], [line[-1] for line in happened.body], strict=True))
    assert happened.head[-1] == "in time"
    assert shares == {
        "unlimited": "–",
        "none": "–",
        "features": "99.90 %",
        "index_guard": "90.00 %",
        "features_alone": "75.00 %",
        "index": "–",  # nothing came back, which is no share
    }


def test_guard_and_features_are_two_choices_of_which_each_has_a_line_or_a_column() -> None:
    table = tables_of([row(Policy.unlimited), *CELLS])[-1]
    assert (table.title, table.head) == (
        "Guard and features",
        ("", "tensors found by features", "by (operator, i-th tensor)"),
    )
    assert table.body == (
        ("with the guard", "all 40 steps, equal; 99.90 % in time", "all 40 steps, equal; 90.00 % in time"),
        ("without the guard", "out-of-memory at step 21; 75.00 % in time", "out-of-memory at step 21; – in time"),
    )


def test_three_cells_of_four_are_no_comparison() -> None:
    assert [table.title for table in tables_of(CELLS[:3])] == ["What happened", "What the sessions did"]
