"""What the ranks did, from what they trained and from their reports."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from experiments.bits import same_bits
from experiments.ranks.carriers import Carried
from experiments.recompute.programs import Trained
from runtime.ranks.report import COMMUNICATION
from solvers.ir.report import Report, Span

NS = 1000
"""Nanoseconds in a microsecond; virtual times are whole nanoseconds."""


@dataclass(frozen=True)
class Executed:
    """Of a run: virtual microseconds of a step and bytes, of the rank that needs most; what lies beside collectives.

    `hidden_ns` is each rank's, of all steps together: kernels that ran while a collective did.
    """

    step_us: float
    peak_bytes: int
    hidden_ns: tuple[int, ...]
    races: int | None


def executed(done: Carried[Trained]) -> Executed:
    """The figures of a run; the first step, in which the optimizer makes its states, is left out of the mean."""
    steps = [one.step_us[1:] or one.step_us for one in done.trained]
    return Executed(
        step_us=max(sum(each) / len(each) for each in steps),
        peak_bytes=max(max(one.peak_bytes) for one in done.trained),
        hidden_ns=tuple(hidden_ns(report) for report in done.reports),
        races=done.races,
    )


def hidden_ns(report: Report) -> int:
    """How long a rank's kernels ran while one of its collectives did."""
    computes, talks = spans_by_kind(report)
    total, first = 0, 0
    talks = sorted(talks)
    for start, end in sorted(computes):
        while first < len(talks) and talks[first][1] <= start:
            first += 1
        for talk in talks[first:]:
            if talk[0] >= end:
                break
            total += min(end, talk[1]) - max(start, talk[0])
    return total


def spans_by_kind(report: Report) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Beginnings and ends of kernels, and of operations between ranks, in nanoseconds."""

    def ends(span: Span) -> tuple[int, int]:
        return round(span.start_us * NS), round(span.end_us * NS)

    talks = [ends(span) for span in report.spans if span.lane.startswith(COMMUNICATION)]
    computes = [ends(span) for span in report.spans if span.lane.startswith("stream")]
    return computes, talks


def digest(trained: Sequence[Trained]) -> str:
    """Of all bytes of all ranks' gradients after each step: what runs of other carriers are compared by."""
    return hashlib.blake2b(
        " ".join(one for rank in trained for one in rank.digests).encode(), digest_size=16
    ).hexdigest()


def equalities(found: Sequence[Trained], wanted: Sequence[Trained]) -> dict[str, bool]:
    """Whether every rank's bits are those of training without a tape, as far as the shorter of both went.

    Losses of each step; gradients, by their bytes after each step and as tensors after the last; parameters and
    buffers after the last step; states of the random generators after each.
    """
    pairs = list(zip(found, wanted, strict=True))
    whole = all(len(one.losses) == len(other.losses) for one, other in pairs)
    ended = {
        name: all(_same(getattr(one, name), getattr(other, name)) for one, other in pairs)
        for name in (("gradients", "parameters", "buffers") if whole else ())
    }
    digests = all(_begins(one.digests, other.digests) for one, other in pairs)
    return {
        "equal_losses": all(
            same_bits(mine, its) for one, other in pairs for mine, its in zip(one.losses, other.losses, strict=whole)
        ),
        "equal_gradients": digests and ended.pop("gradients", True),
        **{f"equal_{name}": equal for name, equal in ended.items()},
        "equal_random": all(_begins(one.random, other.random) for one, other in pairs),
    }


def _begins(found: Sequence[str], wanted: Sequence[str]) -> bool:
    return bool(found) and list(found) == list(wanted[: len(found)])


def _same(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> bool:
    return found.keys() == wanted.keys() and all(same_bits(found[name], wanted[name]) for name in wanted)
