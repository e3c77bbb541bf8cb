"""Loops whose iterations differ by turns get a policy for each kind of iteration, and lose no bit by that."""

from dataclasses import dataclass, field
from functools import cache

import pytest
import torch

from experiments.models.gpt import GptShape
from runtime.swap.report import IterationSummary
from runtime.swap.session import Session
from runtime.swap.stages import StageSettings
from tests.runtime.swap.training import SHORT, Program, Ran, Trainer, run
from tests.soaking import some

SHAPE = GptShape(layers=4, width=32, heads=2, context=64, batch=8, seed=3)
SOON = StageSettings(warm_up_iterations=1, policies=2)
"""A policy from the fifth iteration of a kind on, the best one from the seventh."""
LAST = 12


def step_of_two_losses(trainer: Trainer) -> torch.Tensor:
    """Another iteration: two forward passes in one."""
    trainer.optimizer.zero_grad(set_to_none=True)
    loss = trainer._loss(None) + trainer._loss(None).square() / 10
    torch.autograd.backward(loss)
    trainer.optimizer.step()
    return loss.detach()


def validating_every_third(trainer: Trainer, _: Session | None) -> list[torch.Tensor]:
    losses = []
    for number in range(42):
        losses.append(trainer.step())
        if number % 3 == 2:
            losses.append(trainer.validate())
    return losses


def of_two_lengths(trainer: Trainer, _: Session | None) -> list[torch.Tensor]:
    return [trainer.step(tokens=SHORT if number % 2 else None) for number in range(30)]


def by_turns(trainer: Trainer, following: Session | None) -> list[torch.Tensor]:
    losses = []
    for number in range(30):
        losses.append(step_of_two_losses(trainer) if number % 2 else trainer.step())
        if following is not None:
            following.step()
    return losses


def accumulating_every_fourth(trainer: Trainer, _: Session | None) -> list[torch.Tensor]:
    return [step_of_two_losses(trainer) if number % 4 == 3 else trainer.step() for number in range(52)]


def at_random(trainer: Trainer, _: Session | None) -> list[torch.Tensor]:
    """No pattern: what comes next is guessed wrong half of the time."""
    draw = torch.Generator().manual_seed(1)
    turns = torch.randint(3, (40,), generator=draw).tolist()
    return [
        step_of_two_losses(trainer) if turn == 0 else trainer.step(tokens=SHORT if turn == 1 else None)
        for turn in turns
    ]


@cache
def unlimited(program: Program) -> Ran:
    return run(program, torch.device("sim", 0), shape=SHAPE)


@dataclass(frozen=True)
class Loop:
    program: Program
    kinds: int
    share: float
    options: dict[str, object] = field(default_factory=dict)


LOOPS = [
    Loop(validating_every_third, kinds=2, share=0.8),
    Loop(of_two_lengths, kinds=1, share=0.7),
    Loop(by_turns, kinds=2, share=0.6, options={"boundaries": "given"}),
    Loop(accumulating_every_fourth, kinds=2, share=0.6),
]


def counted(iterations: list[IterationSummary]) -> tuple[int, int]:
    """Passive swaps, and what came back on demand."""
    return sum(ran.counts.passive for ran in iterations), sum(ran.counts.fallbacks for ran in iterations)


@pytest.mark.parametrize("loop", some(LOOPS), ids=lambda loop: loop.program.__name__)
def test_each_kind_of_iteration_is_swapped_by_its_own_policy(device: torch.device, loop: Loop) -> None:
    budget = int(loop.share * unlimited(loop.program).peak_bytes)
    ran = run(loop.program, device, budget, SHAPE, stages=SOON, **loop.options)
    assert ran.equals(unlimited(loop.program))
    assert ran.peak_bytes <= budget
    assert ran.report is not None and ran.report.generations == loop.kinds
    last = ran.iterations[-LAST:]
    assert {iteration.stage for iteration in last} == {"Stable"}
    assert len({iteration.policy for iteration in last}) == loop.kinds
    alone = run(loop.program, device, budget, SHAPE, stages=StageSettings(1, 2, remembered=0), **loop.options)
    assert alone.equals(ran)
    by_itself = sum(counted(alone.iterations[-LAST:]))
    assert sum(counted(last)) <= 0.2 * by_itself, "the paper's Algorithm 1 by itself"
    assert by_itself > 0 or loop.kinds == 1, "two sizes are of one kind for it, too"


@pytest.mark.parametrize("sample_every", [1, 3])
def test_a_loop_without_a_pattern_loses_no_bit(device: torch.device, sample_every: int) -> None:
    budget = int(0.6 * unlimited(at_random).peak_bytes)
    ran = run(at_random, device, budget, SHAPE, stages=SOON, sample_every=sample_every)
    assert ran.equals(unlimited(at_random))
    assert ran.peak_bytes <= budget


def test_comparing_only_some_iterations_finds_out_when_the_turns_end(device: torch.device) -> None:
    def settling(trainer: Trainer, following: Session | None) -> list[torch.Tensor]:
        return [*of_two_lengths(trainer, following), *(trainer.step() for _ in range(16))]

    free = run(settling, torch.device("sim", 0), shape=SHAPE)
    every, second = (
        run(settling, device, int(0.7 * free.peak_bytes), SHAPE, stages=SOON, sample_every=sample_every)
        for sample_every in (1, 2)
    )
    assert second.equals(free)
    last = second.iterations[-LAST:]
    assert len({iteration.policy for iteration in last}) == 1
    assert counted(last) == counted(every.iterations[-LAST:])


def test_a_policy_of_the_wrong_kind_costs_time_only(device: torch.device) -> None:
    """The pattern breaks off where policies stand: the expected kind's policy runs in an iteration of the other."""

    def breaking(trainer: Trainer, following: Session | None) -> list[torch.Tensor]:
        turns = [step_of_two_losses(trainer) if number % 2 else trainer.step() for number in range(30)]
        return [*turns, *(trainer.step() for _ in range(5)), step_of_two_losses(trainer)]

    free = run(breaking, torch.device("sim", 0), shape=SHAPE)
    budget = int(0.6 * free.peak_bytes)
    ran = run(breaking, device, budget, SHAPE, stages=SOON)
    assert ran.equals(free)
    assert ran.peak_bytes <= budget
    assert sum(iteration.counts.unmatched for iteration in ran.iterations[30:]) > 0
