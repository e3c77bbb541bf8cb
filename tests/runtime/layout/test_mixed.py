"""Half-precise working parameters beside single-precise masters: the bits of doing the same by hand."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim.optimizer import Optimizer

from runtime.device import SimDevice
from runtime.layout import report, unwrap, wrap
from tests.runtime.layout.models import Language, lora, loss_of
from tests.runtime.layout.test_loops import accumulating
from tests.runtime.layout.training import ROOM, Layouts, Make, MakeOptimizer, Trained, adamw, plain_loop, trained


class ByHand(nn.Module):
    """A model whose working copy is on the device in another type; its parameters are the masters."""

    def __init__(self, make: Make, dtype: torch.dtype) -> None:
        super().__init__()
        self.masters = make()
        self.aside = [make().to(dtype).to("sim")]  # in a list it is none of its modules
        for master, working in zip(self.masters.parameters(), self.aside[0].parameters(), strict=True):
            if working.requires_grad:
                working.register_post_accumulate_grad_hook(self._widen(master))  # type: ignore[no-untyped-call]

    def _widen(self, master: nn.Parameter) -> Any:
        def widen(working: Tensor) -> None:
            assert working.grad is not None
            gradient, working.grad = working.grad.cpu().float(), None
            master.grad = gradient if master.grad is None else master.grad + gradient

        return widen

    def forward(self, tokens: Tensor) -> Tensor:
        with torch.no_grad():
            for master, working in zip(self.masters.parameters(), self.aside[0].parameters(), strict=True):
                working.copy_(master)
        logits: Tensor = self.aside[0](tokens)
        return logits


def by_hand(make: Make, dtype: torch.dtype, loop: Any = plain_loop, make_optimizer: MakeOptimizer = adamw) -> Trained:
    torch.manual_seed(0)
    model = ByHand(make, dtype)
    torch.manual_seed(0)
    model.masters.load_state_dict(make().state_dict())
    torch.manual_seed(1)
    losses = loop(model, make_optimizer([one for one in model.parameters() if one.requires_grad]))
    return trained(model.masters, losses)


@pytest.mark.parametrize("make", [Language, lambda: Language(tied=True), lora])
@pytest.mark.parametrize("loop", [plain_loop, accumulating])
def test_half_precision_trains_as_by_hand(sim: SimDevice, make: Make, loop: Any) -> None:
    layouts = Layouts(make, 12_000, dtype=torch.bfloat16)
    want = by_hand(make, torch.bfloat16, loop)
    for seed in range(4):
        assert layouts.train(layouts.random_plan(seed), loop).same_as(want), seed
    assert {one.dtype for one in want.states.values()} == {torch.float32}


def test_loaded_states_reach_the_copies_that_travel(sim: SimDevice) -> None:
    layouts = Layouts(Language, 12_000, dtype=torch.bfloat16)
    model, optimizer = layouts.wrapped(layouts.random_plan(1))
    first = plain_loop(model, optimizer, 1)
    torch.manual_seed(0)
    model.load_state_dict(Language().state_dict())
    optimizer.state.clear()
    torch.manual_seed(1)
    assert torch.equal(plain_loop(model, optimizer, 1)[0], first[0])


def test_the_host_has_no_room_for_masters(sim: SimDevice) -> None:
    """Twenty bytes a parameter: master, gradient, moments, and two that travel each way."""
    torch.manual_seed(0)
    model = Language()
    optimizer = adamw(list(model.parameters()))
    wrap(model, optimizer, budget=ROOM, host_budget=ROOM, compute_dtype=torch.bfloat16, chunk_bytes=12_000)
    loss_of(model, 0)
    problem = report(model).problem
    assert sum(chunk.host_bytes for chunk in problem.chunks) >= 20 * sum(one.numel() for one in model.parameters())
    assert [parameter.dtype for parameter in model.parameters()][:1] == [torch.float32]
    unwrap(model)


def clipped(model: nn.Module, optimizer: Optimizer) -> list[Tensor]:
    """Gradients are single-precise before the step."""
    losses = []
    for step in range(3):
        loss = loss_of(model, step)
        loss.backward()  # type: ignore[no-untyped-call]
        assert {one.grad.dtype for one in model.parameters() if one.grad is not None} == {torch.float32}
        losses += [loss.detach().cpu(), nn.utils.clip_grad_norm_(model.parameters(), 0.05)]
        optimizer.step()
        optimizer.zero_grad()
    return losses


def test_clipping_in_half_precision(sim: SimDevice) -> None:
    layouts = Layouts(Language, 12_000, dtype=torch.bfloat16)
    want = by_hand(Language, torch.bfloat16, clipped)
    plan = next(plan for plan in map(layouts.random_plan, range(50)) if not plan.persistent)
    assert layouts.train(plan, clipped).same_as(want)
