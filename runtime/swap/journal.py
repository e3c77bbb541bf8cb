"""What a session says of itself on the logger `bayplan.swap`: a line for each change of stage, policy and fallback."""

import re

from runtime.loop.log import LOGGER
from runtime.swap.stages import Similarity, Stage
from solvers.ir.amounts import show_bytes


def log_stage(iteration: int, before: Stage, after: Stage, why: Similarity | None = None) -> None:
    """A change of stage after that iteration; silent where the stage stays. `why` is the comparison that led to it."""
    if before is after:
        return
    reason = "" if why is None else f" (length changed by {why.length_change:.1%}, cosine {why.cosine:.4f})"
    LOGGER.info("iteration %d: %s -> %s%s", iteration, before.value, after.value, reason)


def log_policy(iteration: int, number: int, of: int, swaps: int, swapped_bytes: int) -> None:
    """Policy `number` of `of` (counted from 1), made after that iteration, swaps out these tensors and bytes."""
    LOGGER.info("iteration %d: policy %d of %d swaps %d tensors, %d bytes", iteration, number, of, swaps, swapped_bytes)


def log_chosen(iteration: int, number: int, duration_us: float) -> None:
    """That policy was the fastest as measured and is kept."""
    LOGGER.info("iteration %d: policy %d is kept, %.0f us an iteration", iteration, number, duration_us)


def log_return(iteration: int, place: int | None) -> None:
    """The operators are those of an earlier sequence, and what was kept for them is taken up again."""
    kept = "no policy" if place is None else f"policy {place + 1} of all"
    LOGGER.info("iteration %d: the operators are known, %s stands again", iteration, kept)


def log_fallback(iteration: int, sentence: str) -> None:
    """Something could not be done as planned; the sentence says what, and what is done instead."""
    LOGGER.warning("iteration %d: %s", iteration, sentence)


def beyond_reach(reached_bytes: int, largest_bytes: int) -> str:
    """What was recorded tells of iterations of a size, and larger ones come."""
    return (
        f"policies are made for iterations whose forward pass works on {show_bytes(reached_bytes)}, as those of up to "
        f"{show_bytes(largest_bytes)} are not recorded yet: passive swaps do the rest in these"
    )


class Remarks:
    """Sentences that a report repeats: of those that differ in numbers only, the first."""

    def __init__(self) -> None:
        self._by_kind: dict[str, str] = {}

    @property
    def sentences(self) -> list[str]:
        """In the order in which they were first said."""
        return list(self._by_kind.values())

    def add(self, iteration: int, sentence: str | None, *, expected: bool) -> None:
        """Say it if nothing like it was said yet, and log it: a fallback, unless it is `expected`."""
        kind = re.sub(r"\d[\d.]*|\b[KMGT]iB\b", "", sentence or "")
        if sentence is None or kind in self._by_kind:
            return
        self._by_kind[kind] = sentence
        if expected:
            LOGGER.info("iteration %d: %s", iteration, sentence)
        else:
            log_fallback(iteration, sentence)
