"""How long a swapped block waits for its reuse, and what that costs: the engine's own ways beside PyTorch's (Figure 8).

With `printed`, as in the paper, the engine gives a block back at the operator at which its schedule expects the copy to
be done, behind an event between streams. With `custom` it does so from that operator on, when somebody asks for memory
or the copy is done. With `torch` it calls `record_stream` and lets the allocator find out: at each request for memory
the host looks at the events, so that a block is free only once the host, not the device, is past its copy's end.
"""

import gc
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Literal

import torch

from experiments.models.gpt import GptShape
from experiments.models.workload import Step
from experiments.reproduction import OUT_OF_MEMORY, Cells, Result, Series
from experiments.reproduction.result import Value
from experiments.smartswap.executed import gpt_of, reduced
from runtime.device import SimDevice, memory_stats, use_sim
from runtime.swap import HostMemoryShort, session
from solvers.ir.hardware import Hardware

Way = Literal["printed", "custom", "torch"]
PLAIN = "unlimited"
PLAIN_STEPS = 3
"""Of a run in memory without end: the first makes the optimizer's states, the others are alike."""
NS_PER_S = 10**9
FIGURES = {
    "step_s": ("step", "s"),
    "mean_interval": ("mean interval", "kernels"),
    "longest_interval": ("longest interval", "kernels"),
    "event_queries": ("event queries", ""),
    "host_waits": ("host waits", ""),
    "blocks": ("blocks", ""),
    "kernels": ("kernels", ""),
}
"""What is shown of each way: name and unit; the last four are numbers per step."""
COMPARED = ("step_s", "mean_interval", "longest_interval")
Numbers = dict[str, float | None]


@dataclass(frozen=True)
class Trial:
    """A training loop under a session whose last iterations are measured."""

    budget_share: float
    event_query_ns: int
    iterations: int
    measured: int


@dataclass(frozen=True)
class Measured:
    """Of the measured iterations: per step, except for the intervals, which are in kernels launched."""

    step_s: float
    kernels: float
    event_queries: float
    host_waits: float
    blocks: float
    mean_interval: float | None
    longest_interval: int | None


def unlimited(machine: Hardware, shape: GptShape) -> Numbers:
    """Peak bytes, and seconds of a step, in memory without end."""
    gc.collect()  # what an earlier run left unreachable on the device would count in this one
    sim = use_sim(machine, races="off")
    workload = shape.build(sim.device)
    for _ in range(PLAIN_STEPS):
        sim.synchronize()
        began = sim.host_ns()
        workload.step()
    sim.synchronize()
    return {"peak_bytes": memory_stats(sim.device).peak_bytes, "step_s": (sim.host_ns() - began) / NS_PER_S}


def under_session(machine: Hardware, shape: GptShape, way: Way, trial: Trial, peak_bytes: int) -> Numbers:
    """One loop within the trial's share of the unlimited peak; empty where memory does not suffice."""
    gc.collect()
    sim = use_sim(machine, event_query_ns=trial.event_query_ns)
    workload = shape.build(sim.device)
    budget_bytes = int(peak_bytes * trial.budget_share)
    try:
        with session(budget_bytes, device=sim.device, optimizer=workload.optimizer, record_stream=way):
            for _ in range(trial.iterations - trial.measured):
                workload.step()
            return asdict(_measure(sim, workload.step, trial.measured))
    except (torch.OutOfMemoryError, HostMemoryShort):
        return {}


def _measure(sim: SimDevice, step: Step, steps: int) -> Measured:
    """Runs `steps` steps, with the host free to run ahead from one into the next, and counts what they took."""
    sim.synchronize()
    began, counted, seen = sim.host_ns(), sim.counters(), len(sim.reuse_intervals())
    retries = memory_stats(sim.device).retries
    for _ in range(steps):
        step()
    sim.synchronize()
    now, intervals = sim.counters(), sim.reuse_intervals()[seen:]
    return Measured(
        step_s=(sim.host_ns() - began) / NS_PER_S / steps,
        kernels=(now.kernels - counted.kernels) / steps,
        event_queries=(now.event_queries - counted.event_queries) / steps,
        host_waits=(memory_stats(sim.device).retries - retries) / steps,
        blocks=len(intervals) / steps,
        mean_interval=fmean(intervals) if intervals else None,
        longest_interval=max(intervals, default=None),
    )


def figure_8(
    cells: Cells,
    *,
    machine: str,
    slower: Mapping[str, int],
    shape: Mapping[str, int],
    head_width: int,
    layers: Sequence[int],
    launches_us: Sequence[float],
    ways: Sequence[Way],
    trial: Mapping[str, float],
) -> Result:
    """Each way at every depth and launch overhead; labels `layers N launch U`, U in microseconds."""
    how = Trial(
        budget_share=trial["budget_share"],
        event_query_ns=int(trial["event_query_ns"]),
        iterations=int(trial["iterations"]),
        measured=int(trial["measured"]),
    )
    found: dict[str, dict[str, Numbers | None]] = {PLAIN: {}, **{way: {} for way in ways}}
    cells.total(len(layers) * len(launches_us) * len(found))
    for depth in layers:
        sizes = gpt_of({**shape, "layers": depth}, head_width)
        for launch_us in launches_us:
            hardware = reduced(cells.hardware(machine), slower["flops"], slower["rates"], launch_us=launch_us)
            key, label = {"layers": depth, "launch_us": launch_us}, f"layers {depth} launch {launch_us:g}"
            plain = found[PLAIN][label] = cells.get({**key, "method": PLAIN}, unlimited, hardware, sizes)
            for way in ways:
                found[way][label] = plain and cells.get(
                    {**key, "method": way}, under_session, hardware, sizes, way, how, plain["peak_bytes"]
                )
    return _result(found)


def _result(found: Mapping[str, Mapping[str, Numbers | None]]) -> Result:
    """Every figure by way, and PyTorch's way over the others."""
    ways = [name for name in found if name != PLAIN]
    series = [Series(name=f"{PLAIN}, step", unit="s", points=_points(found[PLAIN], "step_s"))]
    for figure, (name, unit) in FIGURES.items():
        points = {way: _points(found[way], figure) for way in ways}
        series += [Series(name=f"{way}, {name}", unit=unit, points=points[way]) for way in ways]
        others = [way for way in ways if figure in COMPARED and way != "torch"]
        series += [
            Series(name=f"{name}, torch over {way}", unit="x", points=_over(points["torch"], points[way]))
            for way in others
        ]
    return Result(series=tuple(series))


def _points(found: Mapping[str, Numbers | None], figure: str) -> dict[str, Value]:
    """Label → figure; an empty cell is one in which memory did not suffice."""
    return {
        label: None if numbers is None else numbers.get(figure) if numbers else OUT_OF_MEMORY
        for label, numbers in found.items()
    }


def _over(theirs: Mapping[str, Value], mine: Mapping[str, Value]) -> dict[str, Value]:
    """The ratio where both are numbers and the second is not 0."""
    return {
        label: theirs[label] / value  # type: ignore[operator]
        if isinstance(value, int | float) and value > 0 and isinstance(theirs[label], int | float)
        else None
        for label, value in mine.items()
    }
