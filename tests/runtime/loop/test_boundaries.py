"""Where iterations end: real optimizers and gradient scalers, on the CPU."""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.amp.grad_scaler import GradScaler
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks

from runtime.loop.boundaries import PATIENCE, watch_boundaries

ORIGINAL = (GradScaler.step, GradScaler.update)


@pytest.fixture(autouse=True)
def nothing_stays_hooked() -> Iterator[None]:
    """Whatever a test does, PyTorch is as it was."""
    before = (len(_global_optimizer_pre_hooks), len(_global_optimizer_post_hooks))
    yield
    assert (len(_global_optimizer_pre_hooks), len(_global_optimizer_post_hooks)) == before
    assert (GradScaler.step, GradScaler.update) == ORIGINAL


class Diary:
    """What the callbacks told: `(`, `)` for an optimizer and `|` for a boundary, amid what the program writes."""

    def __init__(self) -> None:
        self.text = ""
        self.backward = False

    def boundary(self) -> None:
        self.write("|")
        self.backward = False

    def optimizer(self, on: bool) -> None:
        self.write("(" if on else ")")

    def write(self, word: str) -> None:
        self.text += word


def leaf(value: float = 1.0) -> nn.Parameter:
    """A parameter with a gradient of ones."""
    parameter = nn.Parameter(torch.full((2,), value))
    parameter.grad = torch.ones(2)
    return parameter


def sgd(parameter: nn.Parameter | None = None) -> torch.optim.SGD:
    """The plainest optimizer."""
    return torch.optim.SGD([leaf() if parameter is None else parameter], lr=0.1)


def test_a_boundary_follows_each_step_of_a_plain_loop() -> None:
    diary, optimizer = Diary(), sgd()
    with watch_boundaries(diary.boundary, diary.optimizer):
        for _ in range(3):
            diary.write("f")
            optimizer.step()
    optimizer.step()
    assert diary.text == "f()|f()|f()|"


def test_accumulated_backward_passes_lie_within_the_iteration() -> None:
    diary, model = Diary(), nn.Linear(3, 1)
    optimizer = torch.optim.AdamW(model.parameters())
    with watch_boundaries(diary.boundary, diary.optimizer):
        for number in range(6):
            model(torch.ones(4, 3)).sum().backward()
            diary.write("b")
            if number % 3 == 2:
                optimizer.step()
                optimizer.zero_grad()
    assert diary.text == "bbb()|bbb()|"


def gan(diary: Diary, first: torch.optim.Optimizer, second: torch.optim.Optimizer) -> None:
    """Two rounds, the first optimizer twice in each."""
    for _ in range(2):
        for optimizer in (first, first, second):
            optimizer.step()


def test_of_several_optimizers_the_first_that_steps_is_the_clock() -> None:
    diary = Diary()
    with watch_boundaries(diary.boundary, diary.optimizer):
        gan(diary, sgd(), sgd())
    assert diary.text == "()|()|()" * 2


def test_or_the_one_that_is_given() -> None:
    diary, generator = Diary(), sgd()
    with watch_boundaries(diary.boundary, diary.optimizer, optimizer=generator):
        gan(diary, sgd(), generator)
        for _ in range(2 * PATIENCE):
            sgd().step()
    assert diary.text == "()()()|" * 2 + "()" * 2 * PATIENCE


def test_a_clock_that_is_gone_or_stands_still_is_replaced() -> None:
    diary, other = Diary(), sgd()
    with watch_boundaries(diary.boundary, diary.optimizer):
        sgd().step()
        assert diary.text.endswith("|")
        other.step()
        assert diary.text.endswith("|")
        for _ in range(PATIENCE):
            assert not diary.text.endswith(")")
            last = sgd()
            last.step()
            diary.write(".")
        for _ in range(PATIENCE - 1):
            last.step()
        assert diary.text.endswith("()|")


def test_given_boundaries_leave_only_the_optimizers_phase_to_watch() -> None:
    diary, optimizer = Diary(), sgd()
    with watch_boundaries(None, diary.optimizer):
        optimizer.step()
        optimizer.step()
    assert diary.text == "()()"


class Wrapping(torch.optim.Optimizer):
    """An optimizer that lets another one step, as sharded and sharpness-aware ones do."""

    def __init__(self, inner: torch.optim.Optimizer) -> None:
        super().__init__(inner.param_groups, {})
        self.inner = inner

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        self.inner.step()
        self.inner.step()


@pytest.mark.parametrize("given", [False, True])
def test_an_optimizer_within_an_optimizer_is_one_step(given: bool) -> None:
    diary, inner = Diary(), sgd()
    outer = Wrapping(inner)
    with watch_boundaries(diary.boundary, diary.optimizer, optimizer=inner if given else None):
        outer.step()
        outer.step()
    assert diary.text == "()|()|"


def test_a_closure_that_runs_the_passes_inside_of_the_step_is_part_of_it() -> None:
    diary, model = Diary(), nn.Linear(2, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss: torch.Tensor = model(torch.ones(4, 2)).square().sum()
        loss.backward()  # type: ignore[no-untyped-call]
        diary.write("b")
        return loss

    with watch_boundaries(diary.boundary, diary.optimizer):
        optimizer.step(closure)  # type: ignore[no-untyped-call]
    assert diary.text == "()b" * 3 + "()|", "what the closure runs is no work of the optimizer's"


@pytest.mark.parametrize("keyword", [False, True])
def test_a_closure_keeps_its_result_and_may_raise(keyword: bool) -> None:
    diary, optimizer = Diary(), sgd()

    def closure() -> torch.Tensor:
        diary.write("c")
        return torch.tensor(7.0)

    def fails() -> torch.Tensor:
        raise ArithmeticError("no loss today")

    def step(function: Callable[[], torch.Tensor]) -> Any:
        return optimizer.step(closure=function) if keyword else optimizer.step(function)

    with watch_boundaries(diary.boundary, diary.optimizer):
        assert float(step(closure)) == 7.0
        with pytest.raises(ArithmeticError):
            step(fails)
        assert float(step(closure)) == 7.0
    assert diary.text == "()c()|" + "()(" + "()c()|"


class Failing(torch.optim.SGD):
    """Raises in its first step."""

    fails = True

    def step(self, closure: Any = None) -> Any:
        if self.fails:
            self.fails = False
            raise ArithmeticError("no step today")
        return super().step(closure)  # hooked too: a step within the step


@pytest.mark.parametrize("own", [True, False])
def test_a_step_that_raised_is_over(own: bool) -> None:
    diary, failing = Diary(), Failing([leaf()], lr=0.1)
    following: torch.optim.Optimizer = failing if own else sgd()
    with watch_boundaries(diary.boundary, diary.optimizer):
        with pytest.raises(ArithmeticError):
            failing.step()
        following.step()
        following.step()
    assert diary.text == "((" + ")|()|"


def test_what_a_callback_raises_reaches_the_training_loop() -> None:
    def boundary() -> None:
        raise MemoryError("no plan")

    optimizer = sgd()
    with watch_boundaries(boundary, lambda on: None), pytest.raises(MemoryError, match="no plan"):
        optimizer.step()


def scaler() -> GradScaler:
    """A gradient scaler that works on the CPU."""
    return GradScaler("cpu", init_scale=4.0, growth_interval=1000)


def amp_loop(diary: Diary, finite: list[bool]) -> None:
    """Some iterations with loss scaling; where not finite, the step is skipped."""
    parameter, scale = leaf(), scaler()
    optimizer = torch.optim.Adam([parameter])
    for good in finite:
        optimizer.zero_grad()
        loss = (parameter * (1.0 if good else float("inf"))).sum()
        scale.scale(loss).backward()  # type: ignore[no-untyped-call]
        diary.backward = True
        diary.write("b")
        scale.step(optimizer)
        diary.write("u")
        scale.update()


@pytest.mark.parametrize("told", [False, True])
def test_a_skipped_step_ends_the_iteration_where_a_step_would(told: bool) -> None:
    diary = Diary()
    seen = (lambda: diary.backward) if told else None
    with watch_boundaries(diary.boundary, diary.optimizer, backward_seen=seen):
        amp_loop(diary, [False, True, False, False, True])
    assert diary.text == "b|ub()|ub|ub|ub()|u"


def test_a_disabled_scaler_changes_nothing() -> None:
    diary, optimizer, scale = Diary(), sgd(), GradScaler("cpu", enabled=False)
    with watch_boundaries(diary.boundary, diary.optimizer, backward_seen=lambda: diary.backward):
        for _ in range(2):
            scale.step(optimizer)
            scale.update()
    assert diary.text == "()|()|"


def test_a_fused_optimizer_that_skips_by_itself_steps_all_the_same() -> None:
    diary, parameter, scale = Diary(), leaf(), scaler()
    optimizer = torch.optim.Adam([parameter], fused=True)
    with watch_boundaries(diary.boundary, diary.optimizer):
        for value in (1.0, float("inf"), 1.0):
            optimizer.zero_grad()
            scale.scale((parameter * value).sum()).backward()  # type: ignore[no-untyped-call]
            scale.step(optimizer)
            scale.update()
    assert diary.text == "()|()|()|"


def test_two_scaled_optimizers_with_an_update_each_end_one_iteration_a_round() -> None:
    diary, scale = Diary(), scaler()
    first, second = sgd(leaf()), sgd(leaf())
    with watch_boundaries(diary.boundary, diary.optimizer, backward_seen=lambda: diary.backward):
        for bad in ([], [first], [second], []):
            for optimizer in (first, second):
                diary.backward = True
                (parameter,) = optimizer.param_groups[0]["params"]
                parameter.grad = torch.full((2,), float("inf") if optimizer in bad else 1.0)
                scale.scale(torch.ones(1))
                scale.step(optimizer)
                scale.update()
            diary.write(" ")
    assert diary.text == "()|() |() ()| ()|() "


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(["first", "second", "first skipped", "second skipped", "backward"]), max_size=14))
def test_whatever_steps_or_is_skipped_the_clock_alone_ends_iterations(events: list[str]) -> None:
    diary, scale = Diary(), scaler()
    optimizers = {"first": sgd(leaf()), "second": sgd(leaf())}
    scale.scale(torch.ones(1))
    attempts = [event.split()[0] for event in events if event != "backward"]
    with watch_boundaries(diary.boundary, diary.optimizer, backward_seen=lambda: diary.backward):
        for event in events:
            diary.backward = True
            if event == "backward":
                continue
            optimizer = optimizers[event.split()[0]]
            (parameter,) = optimizer.param_groups[0]["params"]
            parameter.grad = torch.full((2,), float("inf") if "skipped" in event else 1.0)
            scale.step(optimizer)
            scale.update()
    assert diary.text.count("|") == sum(attempt == attempts[0] for attempt in attempts)
    assert diary.text.count("()") == sum(event in optimizers for event in events)


def test_a_loop_that_looks_for_infinities_itself_ends_its_iterations_at_the_update() -> None:
    diary, scale, optimizer = Diary(), scaler(), sgd()
    (parameter,) = optimizer.param_groups[0]["params"]
    with watch_boundaries(diary.boundary, diary.optimizer, backward_seen=lambda: diary.backward):
        for finite in (True, False, True):
            diary.backward = True
            scale.scale(torch.ones(1))
            parameter.grad = torch.full((2,), 1.0 if finite else float("nan"))
            scale.unscale_(optimizer)
            if bool(torch.isfinite(parameter.grad).all()):
                optimizer.step()
            diary.write("u")
            scale.update()
    assert diary.text == "()|uu|()|u"


def test_contexts_that_overlap_end_in_any_order() -> None:
    outer, inner, optimizer = Diary(), Diary(), sgd()
    first, second = ExitStack(), ExitStack()
    first.enter_context(watch_boundaries(outer.boundary, outer.optimizer))
    optimizer.step()
    second.enter_context(watch_boundaries(inner.boundary, inner.optimizer))
    optimizer.step()
    amp_loop(Diary(), [False])
    first.close()
    optimizer.step()
    amp_loop(Diary(), [False])
    second.close()
    optimizer.step()
    amp_loop(Diary(), [False])
    assert outer.text == "()|()|"
    assert inner.text == "()|()|"


def test_scaled_steps_are_seen_by_each_of_two_watchers_once() -> None:
    outer, inner = Diary(), Diary()
    with watch_boundaries(outer.boundary, outer.optimizer), watch_boundaries(inner.boundary, inner.optimizer):
        amp_loop(Diary(), [True, False, True])
    assert outer.text == inner.text == "()||()|"


def test_who_wraps_the_scaler_meanwhile_keeps_his_wrapping() -> None:
    diary, theirs = Diary(), []
    try:
        with watch_boundaries(diary.boundary, diary.optimizer):
            ours = GradScaler.step
            setattr(GradScaler, "step", lambda *args: theirs.append(ours(*args)))  # noqa: B010 - a method
            amp_loop(Diary(), [True, False])
        assert diary.text == "()||"
        amp_loop(Diary(), [True, False])
        with watch_boundaries(diary.boundary, diary.optimizer):
            amp_loop(Diary(), [True, False])
        assert diary.text == "()||()||"
        assert len(theirs) == 6
    finally:
        setattr(GradScaler, "step", ORIGINAL[0])  # noqa: B010 - a method


def test_the_steps_of_another_thread_are_not_ours() -> None:
    diary, optimizer = Diary(), sgd()
    with watch_boundaries(diary.boundary, diary.optimizer):
        stranger = threading.Thread(target=optimizer.step)
        stranger.start()
        stranger.join()
    assert diary.text == ""


def net() -> nn.Sequential:
    """Four parameters."""
    return nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))


def step_inside(parameters: list[nn.Parameter], every: int = 1) -> list[torch.optim.Optimizer]:
    """An optimizer for each, which steps as soon as its gradient is there (at every so-manieth pass)."""
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


def test_a_step_that_began_before_the_context_is_left_alone() -> None:
    diary, stack = Diary(), ExitStack()

    class Entering(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            stack.enter_context(watch_boundaries(diary.boundary, diary.optimizer))
            return None

    Entering([leaf()], lr=0.1).step()
    stack.close()
    assert diary.text == ""
