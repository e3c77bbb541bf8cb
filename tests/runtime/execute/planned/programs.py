"""The programs that planned runs are tried on: nobody tuned anything for them."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import get_args

import torch

from tests.runtime.execute.planned import networks
from tests.runtime.execute.planned.networks import Network
from tests.runtime.execute.planned.training import Existing, Habits, Optimizer, Trained, Training
from tests.runtime.execute.planned.transformers import Gpt, Shipped, Translating
from tests.runtime.swap.fuzz.program import draw_program
from tests.runtime.swap.models.kernels import KERNELS
from tests.runtime.swap.models.loops import LOOPS
from tests.runtime.swap.models.program import Build

PLAIN = Habits()


@dataclass(frozen=True)
class Program:
    """What is trained and how; `static`: each step runs the same operators on tensors of the same sizes and lives."""

    make: Callable[[], Network]
    habits: Habits = PLAIN
    static: bool = True

    def on(self, device: torch.device, seed: int) -> Trained:
        """A fresh one on that device."""
        return Training(self.make, self.habits, device, seed)


@dataclass(frozen=True)
class Known:
    """A program that the tests of sessions train, too."""

    build: Build
    static: bool = True

    def on(self, device: torch.device, seed: int) -> Trained:
        """A fresh one on that device; it has a seed of its own."""
        return Existing(self.build, device)


PROGRAMS: dict[str, Program | Known] = {
    "mlp": Program(networks.Perceptron),
    "mlp-momentum": Program(networks.Perceptron, Habits("momentum", emptied=True)),
    "mlp-frozen": Program(partial(networks.Perceptron, frozen=3), Habits("adamw foreach")),
    "mlp-fused": Program(networks.Perceptron, Habits("adamw fused", fixed=True)),
    "mlp-double-backward": Program(partial(networks.Perceptron, width=96), Habits("adam", penalized=True)),
    "cnn-batchnorm": Program(networks.Convolutional),
    "cnn-scaled": Program(networks.Convolutional, Habits("momentum", cast=True, scaled=True)),
    "unet": Program(networks.Skipping, Habits("adamw fused")),
    "lstm": Program(networks.Recurrent, Habits("adam", clipped=True)),
    "checkpointed": Program(networks.Checkpointed),
    "checkpointed-reentrant": Program(partial(networks.Checkpointed, reentrant=True)),
    "in-place": Program(networks.InPlace, Habits("sgd")),
    "gpt-fused": Program(Gpt),
    "gpt-written-out": Program(partial(Gpt, attended="written out")),
    "gpt-without-dropout": Program(partial(Gpt, attended="written out", dropout=0.0), Habits(fixed=True)),
    "gpt-tied": Program(partial(Gpt, tied=True), Habits("adam", clipped=True)),
    "gpt-lora": Program(partial(Gpt, attended="written out", lora=True)),
    "gpt-lora-fused": Program(partial(Gpt, lora=True), Habits(clipped=True)),
    "gpt-clipped": Program(partial(Gpt, attended="written out"), Habits(clipped=True)),
    "gpt-accumulating": Program(Gpt, Habits(micro=3)),
    "gpt-autocast": Program(partial(Gpt, attended="written out"), Habits(cast=True)),
    "gpt-two-optimizers": Program(Gpt, Habits("two")),
    "gpt-side-stream": Program(partial(Gpt, attended="written out"), Habits(sideways=True)),
    "encoder-decoder": Program(Translating),
    "encoder-decoder-written-out": Program(partial(Translating, attended="written out"), Habits(clipped=True)),
    "gpt2-sdpa": Program(partial(Shipped, "gpt2", "sdpa")),
    "gpt2-eager": Program(partial(Shipped, "gpt2", "eager"), Habits(clipped=True)),
    "llama-sdpa": Program(partial(Shipped, "llama", "sdpa")),
    "llama-eager": Program(partial(Shipped, "llama", "eager")),
    "bert-sdpa": Program(partial(Shipped, "bert", "sdpa")),
    "bert-eager": Program(partial(Shipped, "bert", "eager")),
    "experts": Program(networks.Experts, static=False),
    "lengths": Program(networks.Lengths, static=False),
    "dropping-blocks": Program(networks.Dropping, static=False),
    "mixtral": Program(partial(Shipped, "mixtral", "eager"), static=False),
    "hooks": Known(LOOPS["hooks"]),
    "adversarial": Known(LOOPS["two-optimizers"]),
    "save-on-cpu": Known(LOOPS["save-on-cpu"]),
    "fed-by-a-thread": Known(LOOPS["fed-by-a-thread"]),
    "autograd-function": Known(KERNELS["autograd-function"]),
    "registered-operator": Known(KERNELS["registered-operator"]),
    "kernel-by-address": Known(KERNELS["kernel-by-address"]),
    "prefetching": Known(LOOPS["prefetch-on-a-stream"]),
    "save-and-copy": Known(LOOPS["save-and-copy"], static=False),
    # Which thread drops a graph of torch.func last, and when, is chance: so is the memory of a step.
    "torch-func": Known(LOOPS["torch-func"], static=False),
    "skipping-scaler": Known(LOOPS["grad-scaler"], static=False),
    "validation": Known(LOOPS["validation"], static=False),
    "interrupted": Known(LOOPS["exception-in-mid-step"], static=False),
}


DRAWN = "drawn "
"""A name that begins so is a network of random layers, trained with random habits; a number follows."""
OPTIMIZERS: tuple[Optimizer, ...] = get_args(Optimizer)


def program(name: str) -> Program | Known:
    """The program of that name."""
    return _composed(int(name.removeprefix(DRAWN))) if name.startswith(DRAWN) else PROGRAMS[name]


def _composed(number: int) -> Program:
    drawn, rng = draw_program(number), random.Random(f"habits {number}")
    habits = Habits(
        optimizer=rng.choice(OPTIMIZERS) if not drawn.scaled else "adamw",
        micro=drawn.accumulation,
        cast=rng.random() < 0.2,
        scaled=drawn.scaled,
        clipped=drawn.clipped,
        emptied=rng.random() < 0.2,
        penalized=drawn.twice_differentiable() and rng.random() < 0.2,
        fixed=rng.random() < 0.3,
        sideways=drawn.prefetch,
    )
    return Program(partial(networks.Composed, drawn), habits)
