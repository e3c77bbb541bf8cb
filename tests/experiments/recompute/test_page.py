"""The table by hand: a rival must fit the budget, and is named where it beats a session in both."""

import json
from itertools import groupby
from pathlib import Path

from experiments.recompute.page import best_within, dominated, page
from experiments.recompute.race import Ran

KEPT = Path(__file__).parents[3] / "experiments" / "results" / "recompute"


def ran(way: str, step: float | None, peak: int | None, share: float | None = None, error: str | None = None) -> Ran:
    return Ran(model="m", way=way, share=share, step_us=step, peak_bytes=peak, error=error)


ROWS = [
    ran("plain", 100.0, 1000),
    ran("heu", 110.0, 700, 0.75),
    ran("heu", None, None, 0.4, "InfeasibleBudget: more"),
    ran("block", 130.0, 700, 0.75),
    ran("slow and small", 140.0, 300),
    ran("quick and large", 105.0, 800),
    ran("compiled", None, None, None, "no kernel"),
]


def test_the_best_rival_is_the_quickest_that_fits() -> None:
    fits, none = best_within(ROWS, 0.75), best_within(ROWS, 0.2)
    assert fits is not None and fits.way == "slow and small" and none is None


def test_dominated_is_slower_and_larger() -> None:
    assert dominated(ROWS) == []
    better = ran("better", 109.0, 690)
    assert dominated([*ROWS, better]) == [(ROWS[1], better)]


def test_the_page() -> None:
    lines = page(ROWS).splitlines()
    assert lines[2] == "| m | 75% | heu | 1.1000 | 0.7000 |  |  | slow and small | 1.4000 | 0.3000 |"
    assert "| m | 40% | heu | refused |" in lines[3]
    assert lines[-1] == "- m, compiled: no kernel"


def test_what_is_kept_is_what_its_readme_says() -> None:
    """Budgets kept, peaks as predicted or a little less, times within 1.01 %, and no plan that a rival beats."""
    rows = [Ran(**json.loads(line)) for line in (KEPT / "rows.jsonl").read_text().splitlines()]
    assert (KEPT / "table.md").read_text() == page(rows) + "\n"
    models = [list(own) for _, own in groupby(rows, key=lambda row: row.model)]
    assert len(models) == 10
    for own in models:
        plain = own[0].peak_bytes
        assert plain is not None
        for row in own:
            if row.share is None or row.step_us is None or row.peak_bytes is None or row.predicted_us is None:
                continue
            assert row.peak_bytes <= row.share * plain and row.replanned == 0
            assert abs(row.predicted_us / row.step_us - 1) < 0.0101
            assert row.predicted_peak_bytes is not None
            assert row.peak_bytes <= row.predicted_peak_bytes <= 1.0067 * row.peak_bytes
            rival = best_within(own, row.share)
            assert not row.way.startswith("heu") or rival is None or row.step_us < (rival.step_us or 0.0)
    assert not any(dominated(own) for own in models)
