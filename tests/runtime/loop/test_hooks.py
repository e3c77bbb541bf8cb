"""Hooks of PyTorch's are registered once, however many watch: another thread may be walking through the list."""

from types import FrameType
from typing import Any

import torch
from torch.optim.optimizer import Optimizer, _global_optimizer_post_hooks, _global_optimizer_pre_hooks

from runtime.loop.hooks import OptimizerHooks


class Noting:
    """Notes the steps that it is told of, and wraps their closures."""

    def __init__(self, name: str, log: list[str]) -> None:
        self.name, self.log = name, log

    def before_step(self, around: FrameType, optimizer: Optimizer, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        self.log.append(f"+{self.name} in {around.f_code.co_name}")
        if len(args) < 2:
            return None

        def closure() -> float:
            self.log.append(f"closure of {self.name}")
            return float(args[1]())

        return (args[0], closure), kwargs

    def after_step(self, optimizer: Optimizer) -> None:
        self.log.append(f"-{self.name}")


def test_all_watchers_are_told_by_one_pair_of_hooks() -> None:
    log: list[str] = []
    hooks, first, second = OptimizerHooks(), Noting("first", log), Noting("second", log)
    optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)])
    before = len(_global_optimizer_pre_hooks), len(_global_optimizer_post_hooks)
    hooks.add(first)
    hooks.add(second)
    assert (len(_global_optimizer_pre_hooks), len(_global_optimizer_post_hooks)) == (before[0] + 1, before[1] + 1)
    optimizer.step()
    assert log == ["+first in wrapper", "+second in wrapper", "-first", "-second"]
    log.clear()
    optimizer.step(lambda: 1.0)
    assert log[2:4] == ["closure of second", "closure of first"]
    hooks.remove(first)
    log.clear()
    optimizer.step()
    assert log == ["+second in wrapper", "-second"]
    hooks.remove(second)
    assert (len(_global_optimizer_pre_hooks), len(_global_optimizer_post_hooks)) == before
    hooks.add(first)
    optimizer.step()
    hooks.remove(first)
    assert log[-2:] == ["+first in wrapper", "-first"]
