"""Where one iteration ends and the next begins: found by the optimizer's steps, without a line in the training loop.

The *clock* is one optimizer: the first that steps, unless one is given. An iteration ends when it has stepped, and also
where it would have: `torch.amp.GradScaler.step` skips the step if a gradient is not finite. Other optimizers (a GAN's)
and accumulated backward passes lie within the iteration. A clock that is gone, or stands still while another optimizer
steps `PATIENCE` times, hands over to that one.

Optimizers may step inside the backward pass, one for each parameter even. If the clock does, the iteration ends when
the outermost pass is over. Which parameters have gradients may change, so there a clock hands over as soon as another
optimizer has stepped inside `PATIENCE_INSIDE` times without it.

All hooks are PyTorch's own (`torch.optim.optimizer.register_optimizer_step_pre_hook`), but for two methods of
GradScaler and the function that runs a backward pass, which are wrapped while somebody watches.
"""

import functools
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any, NamedTuple

import torch
from torch.optim.optimizer import Optimizer

from runtime.loop.hooks import OptimizerHooks
from runtime.loop.log import LOGGER
from runtime.loop.patches import Function, Patch, Patches
from runtime.loop.scaling import GradScalerWatch

PATIENCE = 16
"""Steps of another optimizer after which an optimizer that no longer steps stops marking the iterations."""
PATIENCE_INSIDE = 2
"""The same for optimizers that step inside the backward pass."""


@contextmanager
def watch_boundaries(
    on_boundary: Callable[[], None] | None,
    on_optimizer: Callable[[bool], None],
    *,
    optimizer: Optimizer | None = None,
    backward_seen: Callable[[], bool] | None = None,
    owns_thread: Callable[[], bool] = lambda: True,
) -> Iterator[None]:
    """Call `on_boundary` at the end of each iteration of this thread, until the context ends.

    `on_optimizer` is told, on the thread that runs it, when the outermost optimizer step begins (True) and ends (False,
    before the boundary); a closure that the step calls is no part of it.
    `on_boundary=None` watches only that, for boundaries that the program gives itself. `optimizer` is the clock.
    `backward_seen` says whether a backward pass ran since the latest boundary; with it, a `GradScaler.update()` for
    which no optimizer stepped ends an iteration too (a loop that looks for infinities itself). `owns_thread` says
    inside of a backward pass whether the calling thread, if it is one of autograd's, works for this one.

    Contexts may overlap and end in any order. What the callbacks raise passes to whoever called `step()`.
    """
    watcher = _Watcher(on_boundary, on_optimizer, optimizer, backward_seen, owns_thread)
    _hooks.add(watcher)
    _scaling.add(watcher)
    _passing.append(watcher)
    try:
        with _passes.standing():
            yield
    finally:
        _passing.remove(watcher)
        _scaling.remove(watcher)
        _hooks.remove(watcher)


class _OpenStep(NamedTuple):
    """A step that has begun: its optimizer, and the code of PyTorch's frame around it."""

    optimizer: Optimizer
    code: CodeType


class _Steps(threading.local):
    """The steps that a thread is in: those inside a backward pass may run on a thread of autograd's."""

    def __init__(self) -> None:
        self.open: list[_OpenStep] = []  # of the innermost closure, or of none
        self.closures = 0  # that steps of this thread run


class _Watcher:
    """State of one context; only the thread that made it counts, and what autograd runs for that thread."""

    def __init__(
        self,
        on_boundary: Callable[[], None] | None,
        on_optimizer: Callable[[bool], None],
        clock: Optimizer | None,
        backward_seen: Callable[[], bool] | None,
        owns_thread: Callable[[], bool],
    ) -> None:
        self._owns_thread = owns_thread
        self._on_boundary = on_boundary
        self._on_optimizer = on_optimizer
        self._backward_seen = backward_seen
        self._given = clock is not None
        self._clock = None if clock is None else weakref.ref(clock)
        self._others = weakref.WeakKeyDictionary[Optimizer, int]()  # their steps since the clock's
        self._thread = threading.get_ident()
        self._steps_of_thread = _Steps()
        self._due = False  # the clock has stepped inside of another optimizer's step, which is not over
        self._passes = 0  # backward passes that run, one within the other
        self._due_after_pass = False  # the clock has stepped inside of them
        self._steps = 0  # finished or skipped
        self._steps_at_update = 0
        self._warned = False

    def before_step(self, around: FrameType, optimizer: Optimizer, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        """An optimizer's step begins, in PyTorch's frame `around` it; its arguments if a closure is among them."""
        if not self._is_ours():
            return None
        steps = self._steps_of_thread
        steps.open = [step for step in steps.open if _is_running(step, around.f_back)]
        steps.open.append(_OpenStep(optimizer, around.f_code))
        if len(steps.open) == 1:
            if steps.closures == 0 and not _inside_pass():
                self._due = False
            self._on_optimizer(True)
        return self._with_closure(args, kwargs)

    def after_step(self, optimizer: Optimizer) -> None:
        """An optimizer's step has ended; PyTorch does not call this where it raised."""
        steps = self._steps_of_thread
        if not self._is_ours() or not any(step.optimizer is optimizer for step in steps.open):
            return  # the latter: it had begun before the context
        while steps.open.pop().optimizer is not optimizer:
            pass
        self._steps += 1
        ticked = self._is_clock(optimizer)
        if not steps.open:
            self._on_optimizer(False)
        if _inside_pass():
            self._due_after_pass = ticked or self._due_after_pass
            return
        self._due = ticked or self._due
        if self._due and not steps.open and steps.closures == 0:
            self._end_iteration()

    def attempt(self, optimizer: Optimizer, step: Callable[[], float | None]) -> float | None:
        """A gradient scaler steps an optimizer, or skips that for gradients that are not finite."""
        before = self._steps
        result = step()
        if self._steps == before and self._is_ours():
            self._steps += 1
            ticked = self._is_clock(optimizer)
            if ticked and _inside_pass():
                self._due_after_pass = True
            elif ticked:
                self._end_iteration()
        return result

    def updated(self) -> None:
        """A gradient scaler ends an iteration of its own."""
        if not self._is_ours():
            return
        if self._steps == self._steps_at_update and self._backward_seen is not None and self._backward_seen():
            self._end_iteration()
        self._steps_at_update = self._steps

    def pass_begins(self) -> None:
        """A thread runs a backward pass."""
        if threading.get_ident() == self._thread:
            self._passes += 1

    def pass_ends(self) -> None:
        """The backward pass is over, or has raised."""
        if threading.get_ident() != self._thread or self._passes == 0:
            return  # the latter: it had begun before the context
        self._passes -= 1

    def pass_returns(self) -> None:
        """The outermost pass has succeeded: its optimizers have stepped."""
        if threading.get_ident() != self._thread or self._passes > 0:
            return
        due, self._due_after_pass = self._due_after_pass, False
        if due and self._steps_of_thread.closures > 0:  # it ends with the step around the closure
            self._due = True
        elif due:
            self._end_iteration()

    def _end_iteration(self) -> None:
        self._due = False
        if self._on_boundary is not None:
            self._on_boundary()

    def _with_closure(self, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        """The arguments of `step`, the optimizer first, with a closure whose work does not count as the step."""
        if len(args) > 1 and callable(args[1]):
            return (args[0], self._outside_step(args[1]), *args[2:]), kwargs
        if callable(kwargs.get("closure")):
            return args, {**kwargs, "closure": self._outside_step(kwargs["closure"])}
        return None

    def _outside_step(self, closure: Function) -> Function:
        @functools.wraps(closure)
        def outside(*args: Any, **kwargs: Any) -> Any:
            steps = self._steps_of_thread
            around, steps.open = steps.open, []
            steps.closures += 1
            self._on_optimizer(False)
            try:
                return closure(*args, **kwargs)
            finally:
                self._on_optimizer(True)
                steps.closures -= 1
                steps.open = around

        return outside

    def _is_ours(self) -> bool:
        """Whether this thread's step counts; inside of a backward pass, whether our thread waits for the pass."""
        if not _inside_pass():
            return threading.get_ident() == self._thread
        if threading.get_ident() != self._thread and not self._owns_thread():
            return False
        if self._passes == 0 and self._on_boundary is not None and not self._warned:
            self._warned = True
            LOGGER.warning(
                "an optimizer steps inside of a backward pass that was not begun by torch.autograd on the session's "
                "thread, and ends no iteration: give the boundaries"
            )
        return self._passes > 0

    def _is_clock(self, optimizer: Optimizer) -> bool:
        """Whether this optimizer marks the iterations; the first optimizer that steps becomes the one that does."""
        clock = None if self._clock is None else self._clock()
        if optimizer is clock:
            self._others.clear()
            return True
        self._others[optimizer] = self._others.get(optimizer, 0) + 1
        patience = PATIENCE_INSIDE if _inside_pass() else PATIENCE
        if clock is not None and (self._given or self._others[optimizer] < patience):
            return False
        self._clock = weakref.ref(optimizer)
        self._others.clear()
        return True


def _inside_pass() -> bool:
    """Whether the calling thread works for a backward pass."""
    return torch._C._current_graph_task_id() != -1


def _is_running(step: _OpenStep, frame: FrameType | None) -> bool:
    """Whether a step that has begun is on the stack still, from that frame on: one that raised has no end.

    PyTorch's frame around the step is known by its code, and the optimizer is among its variables.
    """
    while frame is not None:
        if frame.f_code is step.code and any(value is step.optimizer for value in frame.f_locals.values()):
            return True
        frame = frame.f_back
    return False


_hooks = OptimizerHooks()
_scaling = GradScalerWatch()


def _around_passes(run: Function) -> Function:
    """Wraps the function that all backward passes from Python go through."""

    def passing(*args: Any, **kwargs: Any) -> Any:
        watchers = tuple(_passing)
        for watcher in watchers:
            watcher.pass_begins()
        try:
            result = run(*args, **kwargs)
        finally:
            for watcher in watchers:
                watcher.pass_ends()
        for watcher in watchers:
            watcher.pass_returns()
        return result

    return passing


_passing: list[_Watcher] = []
_passes = Patches(lambda: [Patch(torch.autograd, "_engine_run_backward", _around_passes)])
