"""Optimizers that step inside the backward pass: iterations, phases and policies are those of any other loop."""

import weakref
from collections.abc import Callable
from functools import cache, partial

import pytest
import torch

from runtime.swap.session import Session
from runtime.swap.stages import StageSettings
from tests.runtime.swap.training import Program, Ran, Trainer, run

STEPS = 12
SOON = StageSettings(warm_up_iterations=1, policies=2)
Optimizers = list[torch.optim.Optimizer]
Attach = Callable[[Trainer], tuple[Optimizers, Optimizers]]
"""Answers optimizers that step inside the pass, and those for afterwards."""


def all_inside(trainer: Trainer) -> tuple[Optimizers, Optimizers]:
    """Each parameter's own."""
    return _attach(trainer, list(trainer.model.parameters())), []


def some_inside(trainer: Trainer) -> tuple[Optimizers, Optimizers]:
    """The embeddings' optimizer steps after the pass."""
    first, *others = trainer.model.parameters()
    return _attach(trainer, others), [torch.optim.SGD([first], lr=1e-2)]


def _attach(trainer: Trainer, parameters: list[torch.nn.Parameter]) -> Optimizers:
    own: list[torch.optim.Optimizer] = [
        torch.optim.AdamW([parameter], lr=1e-3, foreach=False) for parameter in parameters
    ]
    for parameter, optimizer in zip(parameters, own, strict=True):
        parameter.register_post_accumulate_grad_hook(_step_of(optimizer))  # type: ignore[no-untyped-call]
        trainer.optimizer.state[parameter] = optimizer.state[parameter]
    return own


def _step_of(optimizer: torch.optim.Optimizer) -> Callable[[torch.Tensor], None]:
    """A hook that holds nothing: a parameter that kept its optimizer alive, and so itself, would stay for ever."""
    known = weakref.ref(optimizer)

    def step(parameter: torch.Tensor) -> None:
        found = known()
        assert found is not None
        found.step()
        parameter.grad = None

    return step


def training(attach: Attach) -> Program:
    """Plain steps; whatever does not step inside the pass steps after it."""

    def program(trainer: Trainer, _: Session | None) -> list[torch.Tensor]:
        inside, afterwards = attach(trainer)
        losses = []
        for _step in range(STEPS):
            loss = trainer._loss(None)
            loss.backward()  # type: ignore[no-untyped-call]
            for optimizer in afterwards:
                optimizer.step()
                optimizer.zero_grad()
            losses.append(loss.detach())
        assert inside
        return losses

    return program


def closing(trainer: Trainer, _: Session | None) -> list[torch.Tensor]:
    """The whole iteration in a closure of `optimizer.step`."""

    def closure() -> torch.Tensor:
        trainer.optimizer.zero_grad()
        loss = trainer._loss(None)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    return [trainer.optimizer.step(closure).detach() for _ in range(STEPS)]


PROGRAMS = {"all": training(all_inside), "some": training(some_inside), "closure": closing}


@cache
def unlimited(name: str) -> Ran:
    return run(PROGRAMS[name], torch.device("sim", 0))


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("share", [0.8, 0.6])
def test_an_iteration_ends_once_a_step_and_policies_are_made(device: torch.device, name: str, share: float) -> None:
    budget = int(share * unlimited(name).peak_bytes)
    ran = run(PROGRAMS[name], device, budget, stages=SOON)
    assert ran.equals(unlimited(name))
    assert ran.peak_bytes <= budget
    report = ran.report
    assert report is not None
    assert STEPS - 1 <= report.iterations <= STEPS
    assert report.stage == "Stable"
    assert report.generations == 1
    tried = [policy.counts for policy in report.policies if policy.counts is not None]
    assert tried and all(counts.unmatched == 0 and counts.in_time + counts.kept >= 5 for counts in tried)
    assert any(policy.kept for policy in report.policies) or "passive swaps alone" in str(report.remarks)
    assert len({iteration.operators for iteration in ran.iterations[2:]}) == 1


FORWARD, WITHOUT_GRADIENTS, BACKWARD, OPTIMIZER = range(4)


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_operator_is_in_the_phase_that_it_is_in(
    device: torch.device, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    phases: list[bytes] = []

    def noting(original: Callable[..., object], control: object, ended: object, *rest: object) -> object:
        phases.append(ended.phases)  # type: ignore[attr-defined]
        return original(control, ended, *rest)

    from runtime.swap.control import Control

    monkeypatch.setattr(Control, "_decide", partial_method(noting, Control._decide))
    run(PROGRAMS[name], device, int(0.8 * unlimited(name).peak_bytes), stages=SOON)
    last = phases[-1]
    counts = {phase: last.count(phase) for phase in (FORWARD, BACKWARD, OPTIMIZER)}
    assert min(counts.values()) > 20, counts
    assert WITHOUT_GRADIENTS not in last
    order = list(dict.fromkeys(last))
    assert order.index(FORWARD) < order.index(BACKWARD)
    if name == "all":
        assert last.rindex(BACKWARD) > last.index(OPTIMIZER) > last.index(BACKWARD), "they alternate"


def partial_method(around: Callable[..., object], original: Callable[..., object]) -> Callable[..., object]:
    """A method that calls `around` with the original one first."""
    call = partial(around, original)
    return lambda *args: call(*args)
