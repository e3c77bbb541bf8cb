"""What a tape costs an operator, with everything stored: beside training without one, and beside what PyTorch takes.

*Recorded* operators made or wrote a storage; *dispatched* are all that the step calls, views and what composite
operators call included. Three controls say what PyTorch takes to call anybody at all: an observer (`RecordFunction`
with inputs) that does nothing, the recorder's way through the dispatcher with nothing recorded, and hooks on saved
tensors that only detach (without that, results would hold themselves); a Python mode is what a recorder in Python would
begin with.
"""

import math
import time
from collections.abc import Callable, Sized
from contextlib import AbstractContextManager, nullcontext
from statistics import median, quantiles
from typing import Any

from experiments.bench.figure import Figure
from experiments.bench.threads import one_thread

GOAL_NS = 3000.0
PLAIN, TAPE = "plain", "tape"
WAY = "the recorder's way, nothing recorded"
OBSERVER, HOOKS = "PyTorch's observer that does nothing", "hooks that only detach"
MODE = "Python mode that does nothing"
WAYS = (PLAIN, TAPE, OBSERVER, WAY, HOOKS, MODE)
DEVICES = ("cpu", "sim")
STEPS = 8
"""Of a way in one turn, the fastest of which counts: others found the processor's caches full of other work."""


def tape_figures(rounds: int) -> list[Figure]:
    """A small GPT layer, forward alone and with its backward pass, by turns, one thread, everything stored."""
    from runtime.device.native import why_missing

    missing = why_missing("runtime._C") or why_missing("runtime._sim")
    if missing is not None:
        return [Figure("tape", None, "", None, "", missing)]
    from runtime.device import use_sim

    use_sim(races="off")
    with one_thread():
        return [
            figure for device in DEVICES for backward in (False, True) for figure in _figures(device, backward, rounds)
        ]


def _figures(device: str, backward: bool, rounds: int) -> list[Figure]:
    step, ways = _layer(device)
    spent: dict[str, list[float]] = {way: [] for way in WAYS}
    nodes = 0
    for number in range(rounds + 1):
        for way in WAYS:
            each, recorded = _time(step, ways[way], backward)
            nodes = recorded if way == TAPE else nodes
            if number:  # the first round warms up
                spent[way].append(each)
    calls = _calls(step)
    passes = "forward and backward" if backward else "forward"
    plain = spent.pop(PLAIN)
    beyond = {way: median(_added(times, plain)) for way, times in spent.items()}
    about = (
        f"the fastest of {STEPS} steps in each of {rounds} interleaved rounds; {nodes} operators that make or write "
        f"data, {calls} through the dispatcher"
    )
    figures = [Figure(f"{device}, {passes}, plain", median(plain), "µs", None, "", f"median, {about}")]
    for way, times in spent.items():
        added = _added(times, plain)
        step_us = median(times)
        figures.append(Figure(f"{device}, {passes}, {way}", step_us, "µs", step_us / median(plain), "plain", "median"))
        for name, count in (("recorded operator", nodes), ("dispatched operator", calls)):
            ns = [1e3 * one / count for one in added]
            label = f"{device}, {passes}, {way}, added per {name}"
            low, _, high = quantiles(ns)
            how = f"median of paired differences (quartiles {low:.0f} to {high:.0f})"
            figures.append(Figure(label, median(ns), "ns", median(ns) / GOAL_NS, "goal of 3 µs", how))
    label, floor = f"{device}, {passes}, a tape beside {OBSERVER}", beyond[OBSERVER]
    ratio = beyond[TAPE] / floor if floor > 0 else None  # on a busy machine of few rounds
    return [*figures, Figure(label, beyond[TAPE], "µs", ratio, "the observer's", "what both add to a step")]


def _added(times: list[float], plain: list[float]) -> list[float]:
    """Microseconds of each round, beyond plain training's in the same round."""
    return [with_it - without for with_it, without in zip(times, plain, strict=True)]


Way = Callable[[], AbstractContextManager[Any]]


def _time(step: Callable[[], Any], way: Way, backward: bool) -> tuple[float, int]:
    """Processor time of the fastest step (µs), all threads: autograd serves sim on its own; operators recorded."""
    recorded, fastest = 0, math.inf
    for _ in range(STEPS):
        began = time.process_time_ns()
        with way() as tape:
            ends = step()
        if backward:
            ends.sum().backward()
        recorded = len(tape) if isinstance(tape, Sized) else 0
        del ends, tape
        fastest = min(fastest, (time.process_time_ns() - began) / 1e3)
    return fastest, recorded


class _Held:
    """What `with` around a step turns on; a class, as the tape's own: a generator would cost as much as an operator."""

    __slots__ = ("_hold",)

    def __init__(self, hold: Callable[[bool], None]) -> None:
        self._hold = hold

    def __enter__(self) -> None:
        self._hold(True)

    def __exit__(self, *error: object) -> None:
        self._hold(False)


def _same(tensor: Any) -> Any:
    return tensor


def _layer(device: str) -> tuple[Callable[[], Any], dict[str, Way]]:
    import torch
    from torch import nn
    from torch.utils._python_dispatch import TorchDispatchMode

    from runtime.device.native import core
    from runtime.recompute.tape import EVERYTHING, record

    class Nothing(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    torch.manual_seed(0)
    place = torch.device("cpu") if device == "cpu" else torch.device("sim", 0)
    layer = nn.TransformerEncoderLayer(16, 2, 64, batch_first=True, norm_first=True).to(place)
    x = torch.randn(1, 4, 16).to(place)
    ways: dict[str, Way] = {
        PLAIN: nullcontext,
        TAPE: lambda: record(place, EVERYTHING),
        OBSERVER: lambda: _Held(core.hold_idle_observer),
        WAY: lambda: _Held(core.hold_idle_recorder),
        HOOKS: lambda: torch.autograd.graph.saved_tensors_hooks(torch.Tensor.detach, _same),
        MODE: Nothing,
    }
    return lambda: layer(x), ways


def _calls(step: Callable[[], object]) -> int:
    """Operators that a step calls through the dispatcher, those inside others included."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        step()
    return sum(event.name.startswith("aten::") for event in profiler.events())
