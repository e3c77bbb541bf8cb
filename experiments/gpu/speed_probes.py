"""How fast a device copies, computes and waits, where Bayplan's models suppose something about it."""

import gc
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from runtime.device import clock, memory_stats, reset_peak_memory
from runtime.profile import costs, kernels
from runtime.profile.clocks import EventClock, settled_s
from runtime.profile.links import measure_both_ways
from runtime.swap import IterationSummary, SessionReport, session

BUDGET, SETTLING, MEASURED = 0.7, 13, 5
"""Of the plain peak; iterations until a session keeps a policy, and those that count."""


def event_costs(device: torch.device) -> Mapping[str, Any]:
    """µs of the host for events, and for the smallest kernel."""
    found = costs.event_costs(device)
    return {**found._asdict(), "launch_us": costs.launch_us(device, EventClock(device))}


def copies(device: torch.device) -> Mapping[str, Any]:
    """The links with the host, and how much copies both ways at once slow each other down."""
    links, slowdown = measure_both_ways(device, "device")
    rates = {f"{link.a} to {link.b}": link.bytes_per_s / 1e9 for link in links}
    return {"gb_per_s": rates, "duplex": links[0].duplex, "both_ways": round(slowdown, 3)}


def products(device: torch.device) -> Mapping[str, Any]:
    """TFLOP/s of matrix products in bfloat16, of ones and of random numbers."""
    size = 8192 if device.type == "cuda" else 512
    random = kernels.matmul(device, torch.bfloat16)(size)
    ones, other, out = (torch.ones(size, size, device=device, dtype=torch.bfloat16) for _ in range(3))
    timer = EventClock(device)
    repeats = 20 if device.type == "cuda" else 2
    found = {}
    for name, call in (("random", random.call), ("ones", lambda: torch.mm(ones, other, out=out))):
        found[name] = round(random.amount / settled_s(timer, call, repeats) / 1e12, 3)
    return found


def side_stream(device: torch.device) -> Mapping[str, Any]:
    """Whether one operator on another stream, once, slows a session for good; what both did in each step."""
    plain, once = _session(device, side=False), _session(device, side=True)
    return {
        "step_us": round(plain.step_us, 1),
        "after_one_on_a_side_stream_us": round(once.step_us, 1),
        "ratio": round(once.step_us / plain.step_us, 3),
        "sessions": {"without": plain.told(), "after_one": once.told()},
    }


class _Session(NamedTuple):
    """Steps of a session, what it did in each, and at its end."""

    times_us: Sequence[float]
    summaries: Sequence[IterationSummary]
    report: SessionReport
    retries: int

    @property
    def step_us(self) -> float:
        """The median settled step."""
        return statistics.median(self.times_us[SETTLING:])

    def told(self) -> Mapping[str, Any]:
        """Where time went: what left by itself, what was waited for, which policies were tried."""
        return {
            "steps_us": [round(time) for time in self.times_us],
            "stages": [summary.stage for summary in self.summaries],
            "passive": [summary.counts.passive for summary in self.summaries],
            "on_demand": [summary.counts.fallbacks for summary in self.summaries],
            "policies": [str(policy) for policy in self.report.policies],
            "remarks": list(self.report.remarks),
            "retries": self.retries,
        }


def _session(device: torch.device, *, side: bool) -> _Session:
    """A small GPT in a session; `side`: once one operator works on another stream."""
    from experiments.models.gpt import GptShape

    gc.collect()
    torch.accelerator.empty_cache()
    reset_peak_memory(device)
    large = GptShape(layers=8, width=1024, heads=8, context=512)
    step = (GptShape(layers=3, width=64) if device.type == "sim" else large).build(device).step
    for _ in range(2):  # the first makes the optimizer's states
        step()
    stats = memory_stats(device)
    peak = stats.peak_bytes if device.type == "sim" else stats.reserved_peak_bytes
    now_ns, times = clock(device), []
    summaries: list[IterationSummary] = []
    with session(int(BUDGET * peak), device=device, watch=summaries.append) as swapping:
        for number in range(SETTLING + MEASURED):
            if side and number == 0:
                with torch.Stream(device):
                    torch.ones(8192, device=device).add_(1)
            began = now_ns()
            step()
            times.append((now_ns() - began) / 1e3)
        report = swapping.report()
    return _Session(times, summaries, report, memory_stats(device).retries - stats.retries)
