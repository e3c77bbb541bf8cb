"""Where iterations end: real optimizers, on the CPU."""

import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
import torch
from torch import nn

from runtime.loop.boundaries import PATIENCE, watch_boundaries
from tests.runtime.loop.diary import Diary, amp_loop, leaf, sgd

pytestmark = pytest.mark.usefixtures("nothing_stays_hooked")


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


def test_the_steps_of_another_thread_are_not_ours() -> None:
    diary, optimizer = Diary(), sgd()
    with watch_boundaries(diary.boundary, diary.optimizer):
        stranger = threading.Thread(target=optimizer.step)
        stranger.start()
        stranger.join()
    assert diary.text == ""


def test_a_step_that_began_before_the_context_is_left_alone() -> None:
    diary, stack = Diary(), ExitStack()

    class Entering(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            stack.enter_context(watch_boundaries(diary.boundary, diary.optimizer))
            return None

    Entering([leaf()], lr=0.1).step()
    stack.close()
    assert diary.text == ""
