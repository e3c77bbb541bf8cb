"""Where executed steps did not follow their plan, in words."""

from collections.abc import Sequence

from runtime.recompute import RecomputeReport
from runtime.swap import SwapCounts

HAPPENED = {
    "on_demand": "{} of the tensors that had left were needed before the plan had them back",
    "postponed": "{} found no memory to come back to at their time",
    "refused": "{} could not leave",
    "left_out": "{} were still out at the end",
}
"""What became of a plan's tensors, by the count that tells it."""
IN_SESSIONS = {
    "diverged": "{} calls of blocks ran other operators than in the first step",
    "refused": "{} storages could not leave",
    "postponed": "{} storages found no memory to come back to at their time",
    "replanned": "{} plans took more than the budget and were made again",
}
"""The same of a session that makes its plan from its first step."""


def in_words(steps: Sequence[SwapCounts], warm_up: int = 0) -> str | None:
    """One sentence on the last step that was not as planned and on how many were not; None where all were.

    Of several steps the first is left out, unless others came before, `warm_up` of them: it creates the optimizer's
    states, which the profiled step found there.
    """
    numbered = list(enumerate(steps, 1 + warm_up))
    judged = numbered if warm_up else numbered[1:] or numbered
    departed = [(number, counts) for number, counts in judged if not counts.as_planned]
    if not departed:
        return None
    number, counts = departed[-1]
    return f"not as planned in {len(departed)} of {len(judged)} steps, last in step {number}: {_how(counts)}"


def of_session(report: RecomputeReport) -> str | None:
    """What a session's steps did otherwise than its plan said, in one sentence; None where all were as planned."""
    parts = [text.format(getattr(report, name)) for name, text in IN_SESSIONS.items() if getattr(report, name)]
    return f"not as planned: {'; '.join(parts)}" if parts else None


def _how(counts: SwapCounts) -> str:
    first = counts.difference or counts.departure
    if first is not None:
        return f"{first} (where operators depend on data, use runtime.swap.session)"
    parts = [text.format(getattr(counts, name)) for name, text in HAPPENED.items() if getattr(counts, name)]
    if counts.swapped_out != counts.planned or counts.swapped_in != counts.planned:
        parts.append(
            f"of {counts.planned} planned swaps {counts.swapped_out} tensors left and {counts.swapped_in} came back"
        )
    if counts.operators_followed != counts.operators_planned or counts.operators != counts.operators_planned:
        parts.append(
            f"of {counts.operators_planned} planned operators {counts.operators_followed} ran in their order, and "
            f"{counts.operators} in all"
        )
    return "; ".join(parts) or "the counts do not add up"
