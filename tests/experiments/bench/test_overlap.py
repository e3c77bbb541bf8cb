"""The time of copies beside kernels, from made-up traces and, where there is one, from a device's."""

from typing import Any

import pytest
import torch

from experiments.bench.overlap import hidden_share, traced, traced_on_sim
from experiments.models.gpt import GptShape
from runtime.device import accelerator, reset_peak_memory, use_sim
from runtime.swap import session
from tests.accelerators import prepare_sim, prepared

prepare_sim()


def event(category: str, name: str, begin: float, end: float) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "ts": begin, "dur": end - begin}


def test_copies_count_as_far_as_a_kernel_runs() -> None:
    """Copies during 0-10 and, two at once, 20-30: 20 µs; kernels cover 5-8, 9-10 and 25-30 of them: 9 µs."""
    events = [
        event("gpu_memcpy", "Memcpy DtoH (Device -> Pinned)", 0, 10),
        event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 20, 30),
        event("gpu_memcpy", "Memcpy DtoH (Device -> Pinned)", 22, 25),
        event("gpu_memcpy", "Memcpy DtoD (Device -> Device)", 40, 90),
        event("kernel", "gemm", 5, 8),
        event("kernel", "gelu", 9, 12),
        event("kernel", "gemm", 25, 60),
        event("cpu_op", "aten::mm", 0, 100),
        {"ph": "M", "name": "process_name"},
    ]
    assert hidden_share(events) == 9 / 20


def test_one_kernel_hides_parts_of_several_copies() -> None:
    """Copies 0-10 and 20-30; one kernel from 5 to 25, and one that ends where the second copy ends: 5 + 5 + 2 of 20."""
    events = [
        event("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", 0, 10),
        event("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 20, 30),
        event("kernel", "gemm", 5, 25),
        event("kernel", "gelu", 28, 30),
    ]
    assert hidden_share(events) == 12 / 20
    assert hidden_share(reversed(events)) == 12 / 20


def test_kernels_within_one_another_count_once() -> None:
    """A copy of 10 us; a kernel of 6 us within it, during which two shorter ones run, one after the other."""
    copy = event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 100, 110)
    kernels = [event("kernel", name, *span) for name, *span in (("a", 101, 107), ("b", 102, 103), ("c", 103, 105))]
    assert hidden_share([copy, *kernels]) == 0.6


def test_only_finished_events_count() -> None:
    """A kernel whose begin alone is in the trace has no duration."""
    copy = event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 0, 10)
    begun = {**event("kernel", "gemm", 0, 10), "ph": "B"}
    assert hidden_share([copy, begun]) == 0
    assert hidden_share([{**copy, "ph": "B"}, event("kernel", "gemm", 0, 10)]) is None


def test_a_trace_without_copies_has_no_share() -> None:
    assert hidden_share([event("kernel", "gemm", 0, 1)]) is None


def test_a_step_on_sim_is_told_in_the_same_words() -> None:
    """A copy on a stream of its own beside a long kernel is hidden, one behind it is not; nothing else is told."""
    prepared("sim")
    sim = use_sim(races="off")
    host = torch.zeros(1 << 20, dtype=torch.uint8).pin_memory()
    there = torch.empty(1 << 20, dtype=torch.uint8, device="sim")
    matrix = torch.ones(1024, 1024, device="sim")
    side = torch.Stream("sim")

    def beside() -> None:
        matrix @ matrix
        with side:
            there.copy_(host, non_blocking=True)

    def behind() -> None:
        matrix @ matrix
        there.copy_(host, non_blocking=True)

    shares = []
    for step in (beside, behind):
        events = traced_on_sim(step, sim)
        assert sorted(event["cat"] for event in events) == ["gpu_memcpy", "kernel"]
        shares.append(hidden_share(events))
    assert shares[0] is not None and shares[0] > 0.9
    assert shares[1] == 0


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_most_copies_of_a_session_run_beside_kernels() -> None:
    device = accelerator("cuda")
    reset_peak_memory(device)
    step = GptShape(layers=8, width=1024, heads=16, context=512, batch=16).build(device).step
    step()
    budget = int(0.75 * torch.cuda.max_memory_allocated(device))
    with session(budget, headroom=0.1) as running:
        for _ in range(14):
            step()
        share = hidden_share(traced(step))
        assert running.report().stage == "Stable"
    assert share is not None and share > 0.5
