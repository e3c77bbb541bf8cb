"""What lies beside collectives, counted by hand."""

from experiments.recompute.figures import hidden_ns
from solvers.ir.report import Report, Span


def test_kernels_beside_a_collective_count_by_their_common_time() -> None:
    spans = [("stream 0", 0.0, 4.0), ("communication 1", 3.0, 7.5), ("stream 0", 5.0, 6.0), ("stream 0", 7.25, 9.0)]
    report = Report(
        name="rank 0", how="executed", source="by hand", makespan_us=9.0, peak_bytes=0,
        spans=tuple(
            Span(action=number, lane=lane, label="x", start_us=start, end_us=end)
            for number, (lane, start, end) in enumerate(spans)
        ),
    )  # fmt: skip
    assert hidden_ns(report) == 1000 + 1000 + 250
