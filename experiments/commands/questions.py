"""What speaks against a budget being meant as it was written."""

from collections.abc import Iterator

from solvers.ir.amounts import show_bytes

SMALL_BYTES, SMALL_SHARE = 1 << 20, 100
"""A budget without a unit below both, a mebibyte and a hundredth of the peak, was hardly meant in bytes."""


def questions(budget: str, amount: int, peak_bytes: int) -> Iterator[str]:
    """Sentences on a budget of `amount` bytes that was written so: one without a unit, or not below the peak."""
    yield from unit_questions(budget, amount, peak_bytes)
    yield from peak_questions(amount, peak_bytes)


def unit_questions(budget: str, amount: int, peak_bytes: int) -> Iterator[str]:
    """Of a number without a unit that is tiny beside the peak."""
    if budget.strip().isdigit() and 0 < amount < min(SMALL_BYTES, peak_bytes // SMALL_SHARE):
        yield (
            f"the budget of {budget} has no unit, so it is of {show_bytes(amount)}, 1/{peak_bytes // max(amount, 1)} "
            f"of the peak of {show_bytes(peak_bytes)}: write {budget}MiB, or a percentage, if that was meant"
        )


def peak_questions(amount: int, peak_bytes: int) -> Iterator[str]:
    """Of a budget that asks nothing of anyone."""
    if amount >= peak_bytes:
        yield (
            f"the budget of {show_bytes(amount)} is not below the peak of {show_bytes(peak_bytes)}, so nothing has to "
            "leave: give less"
        )
