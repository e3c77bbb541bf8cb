"""Reach and scaling executed on the simulated device, at shapes reduced in proportion (Table 4, Figure 6, §7.2)."""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import msgspec
import torch

from experiments.config import DeviceKind
from experiments.execution import Execution, Planned, Treatment, execute
from experiments.models.gpt import GptShape
from experiments.planning import prepare
from experiments.reproduction import OUT_OF_MEMORY, Cells, Result, Series
from experiments.reproduction.result import Value
from experiments.smartswap.ratios import beside
from experiments.worlds import World
from runtime.device import clock
from runtime.swap import HostMemoryShort, session
from solvers.ir.hardware import Hardware
from solvers.ir.solution import Limits
from solvers.swap import GreedySwap
from solvers.swap.make import make_swap_problem

ORIGINAL, RECOMPUTED, PLANNED, SESSION = "original", "full recomputation", "planned", "session"
UNLIMITED = "unlimited memory"
JOURNAL = logging.getLogger("bayplan.swap")
STEPS = 3
"""Of a run without a session: the first makes the optimizer's states, the others are alike."""
Sizes = Mapping[str, int]


def reduced(machine: Hardware, flops: int, rates: int, launch_us: float) -> Hardware:
    """The machine's first device and its host link, slower: arithmetic `flops` times, memory and link `rates` times.

    Arithmetic in single precision is then what half precision is on the machine, divided.
    """
    device = machine.device()
    rate = device.flops_per_s["float16"] // flops
    small = msgspec.structs.replace(
        device, bytes_per_s=device.bytes_per_s // rates, flops_per_s={"float32": rate}, launch_us=launch_us
    )
    links = tuple(
        msgspec.structs.replace(link, bytes_per_s=link.bytes_per_s // rates)
        for link in machine.links
        if {link.a, link.b} == {device.name, "host"}
    )
    return msgspec.structs.replace(machine, name=f"{machine.name}, reduced", devices=(small,), links=links)


def gpt_of(sizes: Sizes, head_width: int) -> GptShape:
    """A GPT without dropout; `hidden` is its width, `sequence` its context, as Table 4 names them."""
    return GptShape(
        layers=sizes["layers"],
        width=sizes["hidden"],
        heads=sizes["hidden"] // head_width,
        context=sizes["sequence"],
        batch=sizes["batch"],
        dropout=0,
    )


class Laboratory:
    """One reduced machine and what runs on it; a shape's plain run is the memory and time that others are beside."""

    def __init__(self, machine: Hardware, head_width: int, iterations: int) -> None:
        self.world = World(DeviceKind.sim, machine)
        self.head_width, self.iterations = head_width, iterations
        self.plain = cache(self._plain)

    def run(self, method: str, sizes: Sizes, capacity_bytes: int | None) -> float | None:
        """Seconds of a typical step on the device's clock; None where memory does not suffice."""
        shape = gpt_of(sizes, self.head_width)
        done: dict[str, Callable[[], Execution | None]] = {
            ORIGINAL: lambda: execute(shape, self.world, STEPS, Treatment(capacity_bytes=capacity_bytes)),
            RECOMPUTED: lambda: execute(
                shape, self.world, STEPS, Treatment(capacity_bytes=capacity_bytes, recompute=True)
            ),
            PLANNED: lambda: self._planned(shape, capacity_bytes),
        }
        if method == SESSION:
            return self._session(shape, capacity_bytes)
        ran = done[method]()
        us = None if ran is None or ran.reason is not None else ran.typical_step_us
        return None if us is None else us / 1e6

    def _plain(self, shape: GptShape) -> Execution:
        """A run in memory without end, with the graph of one more step."""
        return execute(shape, self.world, STEPS, profile="step")

    def _planned(self, shape: GptShape, capacity_bytes: int | None) -> Execution | None:
        """A run under greedy-swap's plan, made from the timed profile of an unlimited one."""
        graph = self.plain(shape).graph
        assert graph is not None
        problem = make_swap_problem(graph, self.world.hardware, capacity_bytes)
        planned: Planned | None = prepare(GreedySwap(), problem, graph, Limits()).planned
        if planned is None:
            return None
        return execute(shape, self.world, STEPS, Treatment(capacity_bytes=capacity_bytes, planned=planned))

    def _session(self, shape: GptShape, capacity_bytes: int | None) -> float | None:
        """The last step of a training loop that a session has kept within the capacity from its first iteration on."""
        device = self.world.open()
        level = JOURNAL.level
        JOURNAL.setLevel(logging.ERROR)  # sizes that need no swapping are part of the figure
        try:
            workload = shape.build(device)
            now_ns = clock(device)
            with session(capacity_bytes, device=device, optimizer=workload.optimizer):
                for _ in range(self.iterations):
                    began = now_ns()
                    workload.step()
                return (now_ns() - began) / 1e9
        except (torch.OutOfMemoryError, HostMemoryShort):
            return None
        finally:
            JOURNAL.setLevel(level)


def laboratory(cells: Cells, machine: str, slower: Mapping[str, float], head_width: int, iterations: int) -> Laboratory:
    """The laboratory that an entry's parameters describe."""
    hardware = reduced(
        cells.hardware(machine), int(slower["flops"]), int(slower["rates"]), launch_us=slower["launch_us"]
    )
    return Laboratory(hardware, head_width, iterations)


def capacity_of(lab: Laboratory, start: Sizes, axis: str, most: int) -> int:
    """The memory in which `most` on this axis is the largest that fits plainly: what it needs, and nothing more."""
    return lab.plain(gpt_of({**start, axis: most}, lab.head_width)).peak_bytes


def reach(
    cells: Cells,
    *,
    machine: str,
    slower: Mapping[str, float],
    start: Sizes,
    head_width: int,
    fits: Mapping[str, int],
    axes: Mapping[str, Mapping[str, int]],
    methods: Sequence[str],
    iterations: int,
) -> Result:
    """The largest value on each axis, by method; labels `METHOD`. `fits` names the size that fills the memory."""
    lab = laboratory(cells, machine, slower, head_width, iterations)
    ((axis, most),) = fits.items()
    cells.total(1 + len(axes) * len(methods))
    capacity = cells.get({"capacity of": dict(fits)}, capacity_of, lab, start, axis, most)
    found: dict[str, dict[str, int | None]] = {name: {} for name in axes}
    for name, size in axes.items():
        for method in methods:
            key = {"axis": name, "method": method}
            found[name][method] = cells.get(key, furthest, lab, method, start, name, size, capacity)
    largest = [Series(name=f"largest {name}", unit="", points=dict(points)) for name, points in found.items()]
    return Result(series=(*largest, *(_ratio(found, method) for method in methods if method != ORIGINAL)))


def furthest(
    lab: Laboratory, method: str, start: Sizes, axis: str, size: Mapping[str, int], capacity_bytes: int
) -> int:
    """The largest multiple of `step`, up to `most`, whose steps run within the capacity."""

    def fits(value: int) -> bool:
        return lab.run(method, {**start, axis: value * size["step"]}, capacity_bytes) is not None

    return largest_that(fits, size["most"] // size["step"]) * size["step"]


def largest_that(fits: Callable[[int], bool], most: int) -> int:
    """The largest of 0…most that fits, where whatever is smaller than one that fits does, too."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low


def _ratio(found: Mapping[str, Mapping[str, int | None]], method: str) -> Series:
    points: dict[str, Value] = {}
    for axis, sizes in found.items():
        one, other = sizes[method], sizes[ORIGINAL]
        points[axis] = one / other if one is not None and other else None
    return Series(name=f"{method} over original", unit="x", points=points)


def scaling(
    cells: Cells,
    *,
    machine: str,
    slower: Mapping[str, float],
    start: Sizes,
    head_width: int,
    fits: Mapping[str, int],
    axes: Mapping[str, Sequence[int]],
    near: Mapping[str, int],
    methods: Sequence[str],
    iterations: int,
) -> Result:
    """Step times by method; labels `AXIS VALUE`. Series that end in `, near` hold the points up to 80/64 of `near`."""
    lab = laboratory(cells, machine, slower, head_width, iterations)
    ((axis, most),) = fits.items()
    cells.total(1 + sum(map(len, axes.values())))
    capacity = cells.get({"capacity of": dict(fits)}, capacity_of, lab, start, axis, most)
    found: dict[str, dict[str, Any] | None] = {}
    close = set()
    for name, values in axes.items():
        for value in values:
            label = f"{name} {value}"
            given = (lab, {**start, name: value}, capacity, list(methods))
            found[label] = cells.get({"at": label}, step_times, *given)
            if 64 * value <= 80 * near[name]:
                close.add(label)
    return Result(series=tuple(_scaling_series(found, close, methods)))


def step_times(lab: Laboratory, sizes: Sizes, capacity_bytes: int, methods: Sequence[str]) -> dict[str, float | str]:
    """Seconds of a step of these sizes without a limit and by method, or how it ended."""
    without = lab.run(ORIGINAL, sizes, None)
    assert without is not None
    times: dict[str, float | str] = {UNLIMITED: without}
    for method in methods:
        spent = lab.run(method, sizes, capacity_bytes)
        times[method] = OUT_OF_MEMORY if spent is None else spent
    return times


def _scaling_series(
    found: Mapping[str, Mapping[str, Any] | None], close: set[str], methods: Sequence[str]
) -> list[Series]:
    def part(name: str) -> dict[str, Value]:
        return {at: None if cell is None else cell[name] for at, cell in found.items()}

    series = [Series(name=name, unit="s", points=part(name)) for name in (UNLIMITED, *methods)]
    plain, again = part(UNLIMITED), part(RECOMPUTED)
    for method in methods:
        if method in (ORIGINAL, RECOMPUTED):
            continue
        series += beside(method, part(method), plain, again, close)
    return series
