"""Threads that a forward begins do not wait for it, whatever they do."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Thread
from typing import Any

import pytest
import torch
from torch import Tensor

from runtime.device import SimDevice
from runtime.layout.turns import Turns
from tests.runtime.layout.test_outside import Net, data, made, train

WAIT_S = 20


class Looking(Net):
    """A net that asks a layer, or itself, for something without gradients, in a thread of its own."""

    def __init__(self, ask: Callable[["Looking", Tensor], Tensor], *, pooled: bool) -> None:
        super().__init__()
        self.ask, self.pool = ask, ThreadPoolExecutor(1) if pooled else None
        self.inside = False

    def forward(self, given: Tensor) -> Tensor:
        if self.inside:
            return super().forward(given)

        def seen() -> Tensor:
            with torch.no_grad():
                return self.ask(self, given)

        self.inside = True
        found = self._apart(seen)
        self.inside = False
        return super().forward(given) * found.sigmoid().mean()

    def _apart(self, work: Callable[[], Tensor]) -> Tensor:
        if self.pool is not None:
            return self.pool.submit(work).result(timeout=WAIT_S)
        future = Future[Tensor]()
        thread = Thread(target=lambda: future.set_result(work()), daemon=True)
        thread.start()
        return future.result(timeout=WAIT_S)


ASKED: tuple[Callable[[Looking, Tensor], Tensor], ...] = (
    lambda model, given: torch.as_tensor(model.first(given)),
    lambda model, given: torch.as_tensor(model.blocks[2](given)),
    lambda model, given: torch.as_tensor(model(given)),
)


@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("ask", ASKED, ids=["layer", "block", "model"])
def test_helpers_without_gradients(sim: SimDevice, ask: Any, pooled: bool) -> None:
    def trained(wrapped: bool) -> list[Tensor]:
        model, optimizer = made(wrapped, lambda: Looking(ask, pooled=pooled), 600_000)
        seen = [loss for number in range(3) for loss in train(model, optimizer, data(number))]
        with torch.no_grad():
            seen.append(model(data(3)).cpu())
        return [*seen, *(one.detach().cpu() for one in model.parameters())]

    assert all(map(torch.equal, trained(False), trained(True)))


def test_who_is_begun_by_another_thread_waits() -> None:
    turns = Turns()
    found: list[bool] = []

    def look() -> None:
        with torch.no_grad():
            found.append(turns.helps)

    def begin() -> None:
        thread = Thread(target=look)
        thread.start()
        thread.join()

    with turns.forward(trains=True):
        outside = ThreadPoolExecutor(1)
        begin()  # by the forward
        outside.submit(begin).result()  # by one that the forward began
    begin()  # by nobody: no forward runs
    with turns.forward(trains=True):
        outside.submit(look).result()  # begun by an earlier forward
    assert found == [True, True, False, True]
