"""Where iterations end if optimizers step inside the backward pass, on the CPU."""

import logging
import threading

import pytest
import torch
from torch import nn

from runtime.loop.boundaries import watch_boundaries
from tests.runtime.loop.diary import Diary, leaf, scaler, sgd

pytestmark = pytest.mark.usefixtures("nothing_stays_hooked")


def net() -> nn.Sequential:
    """Four parameters."""
    return nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))


def step_inside(parameters: list[nn.Parameter], every: int = 1) -> list[torch.optim.Optimizer]:
    """An optimizer for each, which steps as soon as its gradient is there (at every `every`-th pass)."""
    own: list[torch.optim.Optimizer] = []
    for parameter in parameters:
        one, passes = torch.optim.SGD([parameter], lr=0.1), [0]

        def step(_: torch.Tensor, one: torch.optim.Optimizer = one, passes: list[int] = passes) -> None:
            passes[0] += 1
            if passes[0] % every == 0:
                one.step()

        parameter.register_post_accumulate_grad_hook(step)  # type: ignore[no-untyped-call]
        own.append(one)
    return own


def backward(diary: Diary, model: nn.Module) -> None:
    diary.write("f")
    model(torch.ones(1, 2)).sum().backward()
    diary.write("b")


def test_optimizers_inside_the_backward_pass_end_an_iteration_when_the_pass_is_over() -> None:
    diary, model = Diary(), net()
    step_inside(list(model.parameters()))
    with watch_boundaries(diary.boundary, diary.optimizer):
        for _ in range(3):
            backward(diary, model)
    backward(diary, model)
    assert diary.text == "f()()()()|b" * 3 + "fb"


def test_passes_in_which_none_of_them_steps_lie_within_the_iteration() -> None:
    diary, model = Diary(), net()
    step_inside(list(model.parameters()), every=3)
    with watch_boundaries(diary.boundary, diary.optimizer):
        for _ in range(6):
            backward(diary, model)
    assert diary.text == "fbfbf()()()()|b" * 2


def test_of_optimizers_inside_and_after_the_pass_one_alone_ends_iterations() -> None:
    diary, model = Diary(), net()
    first, *others = model.parameters()
    step_inside(others)
    after = sgd(first)
    with watch_boundaries(diary.boundary, diary.optimizer):
        for _ in range(3):
            backward(diary, model)
            after.step()
    assert diary.text == "f()()()|b()" * 3
    given_diary = Diary()
    with watch_boundaries(given_diary.boundary, given_diary.optimizer, optimizer=after):
        for _ in range(3):
            backward(given_diary, model)
            after.step()
    assert given_diary.text == "f()()()b()|" * 3


def test_two_networks_by_turns_are_one_iteration_a_round() -> None:
    diary, model, other = Diary(), net(), net()
    step_inside([*model.parameters(), *other.parameters()])
    with watch_boundaries(diary.boundary, diary.optimizer):
        for _ in range(3):
            backward(diary, model)
            backward(diary, other)
    assert diary.text == "f()()()()|bf()()()()b" * 3


def test_a_clock_without_a_gradient_hands_over_before_an_iteration_is_missed() -> None:
    """An expert that no token chooses any more, say."""
    diary, model = Diary(), net()
    step_inside(list(model.parameters()))
    with watch_boundaries(diary.boundary, diary.optimizer):
        backward(diary, model)
        for parameter in model[1].parameters():  # a backward pass reaches the last layer first
            parameter.requires_grad_(False)
        for _ in range(4):
            backward(diary, model)
    assert diary.text == "f()()()()|b" + "f()()|b" * 4


def test_passes_within_a_closure_end_with_the_step_around_it() -> None:
    diary, model = Diary(), net()
    first, *others = model.parameters()
    step_inside(others)
    around = sgd(first)

    def closure() -> torch.Tensor:
        backward(diary, model)
        return torch.zeros(())

    with watch_boundaries(diary.boundary, diary.optimizer):
        for _ in range(2):
            around.step(closure)
    assert diary.text == "()f()()()b()|" * 2


def test_a_pass_that_raises_ends_no_iteration() -> None:
    diary, model = Diary(), net()
    step_inside(list(model.parameters()))
    hook = next(model.parameters()).register_hook(lambda _: 1 / 0)  # type: ignore[no-untyped-call]
    with watch_boundaries(diary.boundary, diary.optimizer):
        with pytest.raises(ZeroDivisionError):
            backward(diary, model)
        hook.remove()
        backward(diary, model)
    assert diary.text.count("|") == 1 and diary.text.endswith("|b")


def test_scaled_steps_inside_the_pass_count_where_they_are_skipped_too() -> None:
    diary, parameter, scale = Diary(), leaf(), scaler()
    optimizer = sgd(parameter)

    def step(_: torch.Tensor) -> None:
        scale.step(optimizer)
        scale.update()
        optimizer.zero_grad()

    parameter.register_post_accumulate_grad_hook(step)  # type: ignore[no-untyped-call]
    optimizer.zero_grad()
    with watch_boundaries(diary.boundary, diary.optimizer, backward_seen=lambda: diary.backward):
        for value in (1.0, float("inf"), 1.0):
            scale.scale((parameter * value).sum()).backward()  # type: ignore[no-untyped-call]
            diary.write("b")
    assert diary.text == "()|b|b()|b"


def test_a_pass_of_another_thread_is_not_ours(caplog: pytest.LogCaptureFixture) -> None:
    diary, model = Diary(), net()
    step_inside(list(model.parameters()))
    with caplog.at_level(logging.INFO, "bayplan.swap"), watch_boundaries(diary.boundary, diary.optimizer):
        stranger = threading.Thread(target=backward, args=(Diary(), model))
        stranger.start()
        stranger.join()
    assert diary.text == ""
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("an optimizer steps inside of a backward pass that was not begun by torch.autograd")
