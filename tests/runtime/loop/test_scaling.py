"""Where iterations end under gradient scalers, on the CPU."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.amp.grad_scaler import GradScaler

from runtime.loop.boundaries import watch_boundaries
from tests.runtime.loop.diary import Diary, amp_loop, leaf, scaler, sgd

pytestmark = pytest.mark.usefixtures("nothing_stays_hooked")


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


def test_scaled_steps_are_seen_by_each_of_two_watchers_once() -> None:
    outer, inner = Diary(), Diary()
    with watch_boundaries(outer.boundary, outer.optimizer), watch_boundaries(inner.boundary, inner.optimizer):
        amp_loop(Diary(), [True, False, True])
    assert outer.text == inner.text == "()||()|"


def test_who_wraps_the_scaler_meanwhile_keeps_his_wrapping() -> None:
    diary, theirs, original = Diary(), [], GradScaler.step
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
        setattr(GradScaler, "step", original)  # noqa: B010 - a method
