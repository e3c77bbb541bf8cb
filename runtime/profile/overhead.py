"""What the profiler costs: nanoseconds for each operator record, and the whole step's ratio (`make bench`)."""

import gc
import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import torch

from runtime.profile.place import place_of
from runtime.profile.recording import detailed_recording, light_recording

ROUNDS = 15
WIDTH = 32


class Overhead(NamedTuple):
    """Medians over interleaved rounds; ratios are to the step without a profiler, 1 means free.

    `operators` counted operators ran in a step of `base_us`; nested and transparent calls cost too, and are divided
    among them.
    """

    operators: int
    base_us: float
    light_ratio: float
    detailed_ratio: float

    @property
    def light_ns(self) -> float:
        """Nanoseconds for each record in light mode."""
        return self._ns(self.light_ratio)

    @property
    def detailed_ns(self) -> float:
        """Nanoseconds for each record in detailed mode, without reading the results."""
        return self._ns(self.detailed_ratio)

    def _ns(self, ratio: float) -> float:
        return (ratio - 1) * self.base_us * 1000 / self.operators


def measure_overhead(step: Callable[[], object], device: torch.device | str = "cpu", rounds: int = ROUNDS) -> Overhead:
    """Run the step without a profiler, in light and in detailed mode by turns, `rounds` times each.

    Time is the process's, so a busy machine counts little; a round's ratio compares neighbours in time.
    """
    place = place_of(device)
    modes: tuple[Callable[[], AbstractContextManager[object]], ...] = (
        nullcontext,
        light_recording,
        lambda: detailed_recording(place, ()),  # to look for live tensors is no cost of the step
    )
    step()
    with light_recording() as recording:
        step()
    gc.collect()
    times_s = [[_busy_s(step, mode) for mode in modes] for _ in range(rounds)]
    return Overhead(
        operators=len(recording.ids),
        base_us=statistics.median(base for base, _, _ in times_s) * 1e6,
        light_ratio=statistics.median(light / base for base, light, _ in times_s),
        detailed_ratio=statistics.median(detailed / base for base, _, detailed in times_s),
    )


def _busy_s(step: Callable[[], object], mode: Callable[[], AbstractContextManager[object]]) -> float:
    with mode():
        begin = time.process_time()
        step()
        return time.process_time() - begin


def dispatch_bound_step() -> Callable[[], object]:
    """A training step of many tiny operators on the CPU: the profiler's worst case."""
    layers = [layer for _ in range(30) for layer in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU())]
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    batch = torch.randn(8, WIDTH)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss: torch.Tensor = model(batch).square().mean()
        torch.autograd.backward(loss)
        optimizer.step()
        return loss

    return step


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    cost = measure_overhead(dispatch_bound_step())
    print(f"profiler on a dispatch-bound CPU step of {cost.operators} operators, {cost.base_us:.0f} us without it")
    print(f"  light     {cost.light_ns:6.0f} ns per operator record  {cost.light_ratio:.3f} x")
    print(f"  detailed  {cost.detailed_ns:6.0f} ns per operator record  {cost.detailed_ratio:.3f} x")


if __name__ == "__main__":
    main()
