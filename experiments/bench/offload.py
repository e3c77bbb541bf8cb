"""One training step by each way of spending less memory: recomputation, PyTorch's own offloading, a session."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from experiments.bench.figure import Figure
from experiments.bench.overlap import hidden_share, traced

if TYPE_CHECKING:
    import torch

BUDGET = 0.6
"""Of the plain run's peak: what the session gets."""
SETTLED, MEASURED = 12, 5
"""Steps until a session keeps a policy (m + n + 2 iterations, and some), and steps that are measured then."""
NAMES = ("plain", "recompute", "save_on_cpu", "streamed offload", "session")
HIDDEN = "session, copies beside kernels"
LIBRARY = "torchtune.training"
"""Where the streamed activation offloading comes from, if it is installed."""


@dataclass(frozen=True)
class Run:
    """What one way took: the median step on the device's clock, the peak, and the losses."""

    step_us: float
    peak_bytes: int
    losses: "torch.Tensor"
    hidden: float | None = None
    """The share of the copies' time during which a kernel runs, in one more step that is traced on CUDA."""


def offload_figures() -> list[Figure]:
    """Step times of a GPT on CUDA where there is one, else on sim (modelled time), over the plain step's."""
    import torch

    from runtime.device.native import why_missing

    missing = why_missing("runtime._C") or (None if torch.cuda.is_available() else why_missing("runtime._sim"))
    if missing is not None:
        return [Figure(name, None, "µs", None, "", missing) for name in (*NAMES, HIDDEN)]
    plain = _run(lambda _: nullcontext())
    budget = int(BUDGET * plain.peak_bytes)
    runs = {
        "plain": plain,
        "recompute": _run(lambda _: nullcontext(), recompute=True),
        "save_on_cpu": _run(lambda _: torch.autograd.graph.save_on_cpu(pin_memory=True)),
        "streamed offload": _streamed(),
        "session": _run(_session, budget_bytes=budget),
    }
    return [*(_figure(name, run, plain) for name, run in runs.items()), _hidden(runs["session"])]


Way = Callable[[int | None], AbstractContextManager[object]]
"""Given the budget, what to enter around each step; a session is entered once, around all."""


def _session(budget_bytes: int | None) -> AbstractContextManager[object]:
    from runtime.swap import session

    return session(budget_bytes)


def _streamed() -> Run | None:
    """The library's way, or None where it is not installed."""
    from importlib import import_module
    from importlib.util import find_spec

    if find_spec(LIBRARY.partition(".")[0]) is None:
        return None
    offloading = import_module(LIBRARY).OffloadActivations
    return _run(lambda _: offloading(use_pin_memory=True, use_streams=True))


def _run(way: Way, *, recompute: bool = False, budget_bytes: int | None = None) -> Run:
    import torch

    from experiments.models.gpt import GptShape
    from runtime.device import clock, memory_stats

    device = _opened()
    step = GptShape(layers=8, width=128, batch=8, dropout=0.1).build(device, recompute=recompute).step
    now_ns, losses, times = clock(device), [], []
    with way(budget_bytes) if budget_bytes is not None else nullcontext():
        for _ in range(SETTLED + MEASURED):
            began = now_ns()
            with nullcontext() if budget_bytes is not None else way(None):
                losses.append(step().detach().cpu())
            times.append((now_ns() - began) / 1e3)
        peak = memory_stats(device).peak_bytes
        hidden = hidden_share(traced(step)) if device.type == "cuda" and budget_bytes is not None else None
    return Run(median(times[SETTLED:]), peak, torch.stack([loss.flatten() for loss in losses]), hidden)


def _opened() -> "torch.device":
    """The accelerator, with nothing of an earlier run on it."""
    import gc

    import torch

    from runtime.device import accelerator, reset_peak_memory, use_sim

    gc.collect()
    torch.manual_seed(0)
    if not torch.cuda.is_available():
        return use_sim(races="off").device
    device = accelerator("cuda")
    torch.cuda.empty_cache()
    reset_peak_memory(device)
    return device


def _hidden(run: Run | None) -> Figure:
    if run is None or run.hidden is None:
        return Figure(HIDDEN, None, "%", None, "", "a trace needs a CUDA device")
    return Figure(
        HIDDEN, 100 * run.hidden, "%", None, "", "of the time of copies to and from the host, one traced step"
    )


def _figure(name: str, run: Run | None, plain: Run) -> Figure:
    import torch

    if run is None:
        return Figure(name, None, "µs", None, "", f"{LIBRARY.partition('.')[0]} is not installed")
    equal = "losses equal" if torch.equal(run.losses, plain.losses) else "losses differ"
    where = torch.cuda.get_device_name() if torch.cuda.is_available() else "sim (modelled time)"
    how = f"peak {run.peak_bytes / plain.peak_bytes:.0%} of plain, {equal}, {where}, median of {MEASURED} steps"
    return Figure(name, run.step_us, "µs", run.step_us / plain.step_us, "plain", how)
