"""What each observer of a training step adds to an operator."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from statistics import median, quantiles
from typing import TYPE_CHECKING

from experiments.bench.figure import Figure
from experiments.bench.threads import one_thread

if TYPE_CHECKING:
    import torch


def record_figures(rounds: int) -> list[Figure]:
    """Time that each observer adds to a counted operator of a dispatch-bound training step on the CPU, one thread."""
    from runtime.device.native import why_missing

    missing = why_missing("runtime._C")
    if missing is not None:
        return [
            Figure(f"{name}, per operator", None, "ns", None, "", missing) for name in ("light", "detailed", "guard")
        ]
    with one_thread():
        return _record_figures(_training_step(), rounds)


def _training_step() -> Callable[[], "torch.Tensor"]:
    """Forward and backward of four small transformer layers: little arithmetic, so that an observer's cost shows."""
    import torch

    torch.manual_seed(0)
    layers = [torch.nn.TransformerEncoderLayer(32, 2, 64, dropout=0.0, batch_first=True) for _ in range(4)]
    model = torch.nn.Sequential(*layers)
    tokens = torch.randn(2, 32, 32)

    def step() -> torch.Tensor:
        loss: torch.Tensor = model(tokens).square().mean()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    return step


def _record_figures(step: Callable[[], object], rounds: int) -> list[Figure]:
    from runtime.profile.recording import light_recording

    step()
    with light_recording() as recording:
        step()
    records = len(recording.ids)
    observers = _observers()
    times: dict[str, list[int]] = {name: [] for name in observers}
    for _ in range(rounds + 1):
        for name, observer in observers.items():
            with observer():
                began = time.thread_time_ns()  # what else the machine does is not counted
                step()
                times[name].append(time.thread_time_ns() - began)
    times = {name: spent[1:] for name, spent in times.items()}  # the first round warms up
    plain = times.pop("plain")
    about = f"{records} operators a step, {rounds} interleaved rounds, CPU time of one thread"
    figures = [Figure("plain step, per operator", median(plain) / records, "ns", None, "", f"median, {about}")]
    for name, spent in times.items():
        added = [(with_it - without) / records for with_it, without in zip(spent, plain, strict=True)]
        low, _, high = quantiles(added, n=4)
        how = f"median of paired differences (quartiles {low:.0f} to {high:.0f}), start and stop excluded"
        ratio = 1 + median(added) * records / median(plain)
        figures.append(Figure(f"{name}, per operator", median(added), "ns", ratio, "plain", how))
    if "guard" not in times:
        figures.append(
            Figure("guard, per operator", None, "ns", None, "", "this build has no swap guard: run `make build`")
        )
    return figures


def _observers() -> dict[str, Callable[[], AbstractContextManager[object]]]:
    """What is compared, each as what to enter around a step."""
    import torch

    from runtime.device.native import core
    from runtime.profile.recording import detailed_recording, light_recording

    observers: dict[str, Callable[[], AbstractContextManager[object]]] = {
        "plain": nullcontext,
        "light": light_recording,
        "detailed": lambda: detailed_recording(torch.device("cpu")),
    }
    hold = getattr(core, "hold_swap_guard", None)
    return observers if hold is None else {**observers, "guard": lambda: _held(hold)}


@contextmanager
def _held(hold: Callable[[bool], None]) -> Iterator[None]:
    """The swap guard looking at every argument, with nothing swapped out."""
    hold(True)
    try:
        yield
    finally:
        hold(False)
