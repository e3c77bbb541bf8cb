"""What a rank's device did, from its report."""

from collections.abc import Iterable
from dataclasses import dataclass

from runtime.ranks.report import COMMUNICATION
from solvers.ir.report import Report, Span


@dataclass(frozen=True)
class RankFigures:
    """Microseconds: the run's end, and how long the device had a kernel, or an operation between ranks.

    Of a real device, whose report has no lanes, the latter are None, as a CPU's peak is."""

    end_us: float
    compute_us: float | None
    comm_us: float | None
    peak_bytes: int | None


def figures_of_rank(report: Report) -> RankFigures:
    """The figures of one rank."""
    if not report.spans:
        return RankFigures(report.makespan_us, None, None, report.peak_bytes or None)
    talks = [span for span in report.spans if span.lane.startswith(COMMUNICATION)]
    computes = [span for span in report.spans if not span.lane.startswith(COMMUNICATION)]
    return RankFigures(report.makespan_us, _covered(computes), _covered(talks), report.peak_bytes)


def _covered(spans: Iterable[Span]) -> float:
    """How much time at least one of them covers."""
    total, until = 0.0, 0.0
    for span in sorted(spans, key=lambda one: one.start_us):
        total += max(0.0, span.end_us - max(span.start_us, until))
        until = max(until, span.end_us)
    return total
