"""Padded batches: what leaves is planned, what comes back is there, and every bit is as without a budget."""

import pytest

from tests.runtime.swap.sizes.trials import attempt


@pytest.mark.parametrize("program", ["padded", "packed"])
def test_policies_carry_iterations_of_any_size(program: str) -> None:
    pytest.importorskip("transformers")
    row = attempt(program)
    assert not row.refused and row.equal and row.peak_bytes <= row.budget_bytes
    assert row.in_time is not None and row.in_time >= 0.8
    assert row.planned is not None and row.planned >= 0.8
    assert row.report is not None and row.report.generations == 1
