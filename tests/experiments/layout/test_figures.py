"""Figures of a training, from records and tensors made by hand."""

from dataclasses import replace

import torch

from experiments.layout.figures import equalities, executed_report, hidden_us, moved_bytes
from experiments.layout.pictures import lanes_figure
from experiments.layout.training import Trained
from runtime.device import TraceRecord
from solvers.ir.report import Report, Span


def record(kind: str, start_us: int, end_us: int, moved: int = 0) -> TraceRecord:
    return TraceRecord(0, "op", "", kind, 1000 * start_us, 1000 * end_us, moved)


TRACE = [
    record("to device", 10, 20, 300),
    record("matmul", 15, 30),
    record("reduction", 30, 40),
    record("to host", 25, 35, 100),
    record("host", 36, 50),
]
DONE = Trained(
    losses=[1.0, 0.5],
    parameters={"a": torch.ones(2)},
    gradients={"a": torch.zeros(2)},
    buffers={},
    step_us=40.0,
    peak_bytes=7,
    reserved_bytes=8,
    retries=0,
    host_bytes=5,
    pinned_bytes=6,
    trace=TRACE,
)


def test_hidden_and_moved() -> None:
    assert moved_bytes(TRACE) == 400
    assert hidden_us(TRACE) == 5 + 10
    assert hidden_us([]) == 0


def test_the_executed_step_stands_on_the_lanes_of_schedules() -> None:
    report = executed_report("last", DONE, 9)
    assert [span.lane for span in report.spans] == ["0.in", "0.compute", "0.compute", "0.out", "0.host"]
    assert (report.spans[0].start_us, report.makespan_us) == (0, 40)
    assert (report.how, report.peak_bytes, report.budget_bytes) == ("executed", 7, 9)


def test_one_bit_is_enough() -> None:
    assert all(equalities(DONE, DONE).values())
    assert not equalities(replace(DONE, losses=[1.0, 0.5000001]), DONE)["equal_losses"]
    assert not equalities(replace(DONE, parameters={"a": torch.tensor([1.0, 2.0])}), DONE)["equal_parameters"]
    assert not equalities(replace(DONE, gradients={}), DONE)["equal_gradients"]


def test_both_steps_are_in_one_picture() -> None:
    span = Span(action=0, lane="0.compute", label="forward of layer 0", start_us=0, end_us=30)
    predicted = Report(name="step", how="simulated", source="test", makespan_us=35, spans=(span,))
    upper, lower = lanes_figure(predicted, executed_report("last", DONE, None), "One step").axes
    assert (upper.get_ylabel(), lower.get_ylabel()) == ("predicted", "executed")
    drawn = [sum(len(bars.get_paths()) for bars in axes.collections) for axes in (upper, lower)]
    assert drawn == [1, 4], "kernels without a gap are one bar"
