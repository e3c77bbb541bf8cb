"""Predicted peaks of block policy mixes beside those of steps executed on the simulated device (ProTrain §3.2).

`python -m experiments.protrain.peaks` prints the errors for a few small models, trained in several ways.
"""

import argparse
import gc
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import get_args

import torch

from experiments.models.gpt import Gpt, GptShape, build_gpt
from experiments.models.workload import Workload
from runtime.device import SimDevice, memory_stats, reset_peak_memory, use_sim
from runtime.profile.memory import MemoryProfile, block_policies, peak_bytes, profile_memory
from runtime.profile.memory.peaks import Deltas
from runtime.swap.scheduled import policy_executor
from solvers.ir.layout import POLICIES, Policy

SHAPES: Mapping[str, GptShape] = {
    "GPT, 8 blocks of 64": GptShape(layers=8, width=64, context=64, batch=4),
    "GPT, 12 blocks of 32, tied": GptShape(layers=12, width=32, context=128, batch=2, tied=True),
    "GPT, 6 blocks of 128, no dropout": GptShape(layers=6, width=128, context=64, batch=8, dropout=0.0),
}
"""Small enough to run a step in a fraction of a second; parameters outweigh activations in none."""


@dataclass(frozen=True)
class Training:
    """How a model is trained: the first blocks frozen with the embeddings, under autocast to bfloat16 or not.

    The context ends with the model's forward. `cached` says whether it keeps its copies of weights meanwhile.
    """

    frozen_blocks: int = 0
    autocast: bool = False
    cached: bool = True

    def build(self, shape: GptShape, device: torch.device) -> Workload:
        """The model, ready to be trained this way."""
        work = build_gpt(shape, device)
        assert isinstance(work.model, Gpt)
        if self.frozen_blocks:
            work.model.positions.requires_grad_(False)
            for module in (work.model.tokens, *list(work.model.blocks)[: self.frozen_blocks]):
                module.requires_grad_(False)
        if self.autocast:
            context = torch.autocast(device.type, dtype=torch.bfloat16, cache_enabled=self.cached)
            work.model.forward = context(work.model.forward)  # type: ignore[method-assign]
        return work


TRAININGS: Mapping[str, Training] = {
    "": Training(),
    ", 3 blocks frozen": Training(frozen_blocks=3),
    ", autocast": Training(autocast=True),
    ", autocast without cache": Training(autocast=True, cached=False),
    ", 3 blocks frozen, autocast": Training(frozen_blocks=3, autocast=True),
}
MIXES = 60
LEVELS: tuple[Deltas, ...] = get_args(Deltas)


@dataclass(frozen=True)
class PeakCase:
    """One mix of one model: what the step really took, and what was predicted with each level of deltas."""

    model: str
    policies: tuple[Policy, ...]
    interval: int
    executed_bytes: int
    predicted_bytes: Mapping[Deltas, int]

    def error(self, deltas: Deltas = "all") -> float:
        """(predicted − executed) / executed."""
        return (self.predicted_bytes[deltas] - self.executed_bytes) / self.executed_bytes


def peak_cases(
    shapes: Mapping[str, GptShape] = SHAPES,
    mixes: int = MIXES,
    seed: int = 0,
    intervals: Sequence[int] = (1, 2, 3),
    training: Training = TRAININGS[""],
) -> list[PeakCase]:
    """Each model profiled once, then run under `mixes` policies for its blocks; peaks include the optimizer's."""
    sim = use_sim()
    draw = random.Random(seed)
    cases = []
    for name, shape in shapes.items():
        gc.collect()  # what an earlier model left in cycles must not vanish while this one is measured
        work = training.build(shape, sim.device)
        profile = profile_memory(work.model, work.step, sim.device, name=name, optimizer=work.optimizer)
        for policies in policy_mixes(shape.layers, mixes, draw):
            interval = draw.choice(intervals)
            cases.append(_case(profile, policies, interval, _executed_bytes(work, policies, interval, sim)))
    return cases


def policy_mixes(blocks: int, count: int, draw: random.Random) -> Iterator[tuple[Policy, ...]]:
    """All blocks alike, then mixes in random shares, so that some have few swapped blocks and some many."""
    for number in range(count):
        if number < len(POLICIES):
            yield (POLICIES[number],) * blocks
        else:
            shares = [draw.random() for _ in POLICIES]
            yield tuple(draw.choices(POLICIES, shares, k=blocks))


def _executed_bytes(work: Workload, policies: tuple[Policy, ...], interval: int, sim: SimDevice) -> int:
    """The peak of a step that swaps by the swap executor, and checkpoints by `torch.utils.checkpoint`."""
    step: Callable[[], object] = work.step
    if "swap" in policies:
        executor = policy_executor(work.model, work.step, policies, sim.device, interval)
        step = partial(executor.run, work.step)
    unswapped: list[Policy] = ["keep" if policy == "swap" else policy for policy in policies]
    with block_policies(work.model, unswapped, sim.device, interval):
        return executed_peak_bytes(step, sim)


def executed_peak_bytes(step: Callable[[], object], sim: SimDevice) -> int:
    """The allocator's own peak of one step, after one that settles."""
    step()
    reset_peak_memory(sim.device)
    step()
    return memory_stats(sim.device).peak_bytes


def _case(profile: MemoryProfile, policies: tuple[Policy, ...], interval: int, executed: int) -> PeakCase:
    predicted = {deltas: peak_bytes(profile, policies, interval, deltas) for deltas in LEVELS}
    return PeakCase(profile.name, policies, interval, executed, predicted)


def error_table(cases: Sequence[PeakCase]) -> str:
    """Mean and largest error of each model, in percent, with and without deltas; negative: an underestimate."""
    lines = [f"{'model':60} {'mixes':>5}  " + "  ".join(f"{level:>5}: mean    worst" for level in LEVELS)]
    for name in dict.fromkeys(case.model for case in cases):
        own = [case for case in cases if case.model == name]
        figures = []
        for level in LEVELS:
            errors = [100 * case.error(level) for case in own]
            figures.append(f"{fmean(errors):+10.2f}% {max(errors, key=abs):+7.2f}%")
        lines.append(f"{name:60} {len(own):5}  " + "  ".join(figures))
    return "\n".join(lines)


def main() -> None:
    """Print the errors; `--mixes` and `--seed` as in `peak_cases`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mixes", type=int, default=MIXES)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    cases = []
    for suffix, training in TRAININGS.items():
        shapes = {name + suffix: shape for name, shape in SHAPES.items()}
        cases += peak_cases(shapes, options.mixes, options.seed, training=training)
    print(error_table(cases))


if __name__ == "__main__":
    main()
