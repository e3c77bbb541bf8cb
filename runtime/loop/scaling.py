"""What `torch.amp.GradScaler` does to a training loop: it skips steps, and ends iterations of its own."""

import functools
from collections.abc import Callable
from typing import Any, Protocol

from torch.amp.grad_scaler import GradScaler
from torch.optim.optimizer import Optimizer


class ScalerWatcher(Protocol):
    """Who is told of gradient scalers."""

    def attempt(self, optimizer: Optimizer, step: Callable[[], float | None]) -> float | None:
        """A scaler steps an optimizer, or skips that for gradients that are not finite."""
        ...

    def updated(self) -> None:
        """A scaler ends an iteration of its own."""
        ...


class GradScalerWatch:
    """GradScaler's `step` and `update` while somebody watches: wrapped once for all, and put back by the last."""

    def __init__(self) -> None:
        self._watchers: list[ScalerWatcher] = []
        self._wrapped: dict[str, Callable[..., Any]] = {}

    def add(self, watcher: ScalerWatcher) -> None:
        """Let a watcher know."""
        if not self._watchers:
            self._wrap("step", self._step)
            self._wrap("update", self._update)
        self._watchers.append(watcher)

    def remove(self, watcher: ScalerWatcher) -> None:
        """Forget a watcher. Where somebody else has wrapped the methods meanwhile, ours stay below and do nothing."""
        self._watchers.remove(watcher)
        if self._watchers:
            return
        for name, wrapper in self._wrapped.items():
            if getattr(GradScaler, name) is wrapper:
                setattr(GradScaler, name, wrapper.__wrapped__)
        self._wrapped = {}

    def _wrap(self, name: str, around: Callable[..., Any]) -> None:
        original = getattr(GradScaler, name)

        @functools.wraps(original)
        def wrapper(scaler: GradScaler, *args: Any, **kwargs: Any) -> Any:
            return around(functools.partial(original, scaler), *args, **kwargs)

        self._wrapped[name] = wrapper
        setattr(GradScaler, name, wrapper)

    def _step(
        self, original: Callable[..., float | None], optimizer: Optimizer, *args: Any, **kwargs: Any
    ) -> float | None:
        step = functools.partial(original, optimizer, *args, **kwargs)
        for watcher in tuple(self._watchers):
            step = functools.partial(watcher.attempt, optimizer, step)
        return step()

    def _update(self, original: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        original(*args, **kwargs)
        for watcher in tuple(self._watchers):
            watcher.updated()
