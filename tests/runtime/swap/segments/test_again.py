"""An operator that runs out of memory in a session runs again, once place was made; only where that changes no bit."""

from contextlib import nullcontext, suppress

import pytest
import torch
from torch import _ops
from torch.autograd.graph import saved_tensors_hooks

from runtime.device import CachingAllocator, memory_stats, use_sim
from runtime.device.higher_order import let_pass
from runtime.device.native import core, why_missing
from runtime.device.undeclared_writes import UNDECLARED_WRITES, UNDECLARED_WRITES_OF_OTHER_DEVICES
from runtime.swap import session
from tests.runtime.swap.segments.others import OTHERS_WITH_BYTES
from tests.runtime.swap.segments.programs import Trained
from tests.runtime.swap.segments.trials import ready
from tests.soaking import in_soak

pytestmark = pytest.mark.skipif(why_missing("runtime._sim") is not None, reason=str(why_missing("runtime._sim")))

STEPS = 2


@pytest.mark.parametrize(
    ("program", "fraction", "expandable", "recorded"),
    [
        ("encoder-small", 0.45, True, False),  # attention with dropout draws its random numbers once more
        ("encoder-small", 0.45, True, True),
        in_soak("autoencoder", 0.45, False, False),
        in_soak("autoencoder", 0.6, True, False),
    ],
)
def test_budgets_that_were_refused_in_the_first_iteration_are_kept(
    program: str, fraction: float, expandable: bool, recorded: bool
) -> None:
    """Six or twelve blocks of 9 to 14 MiB, of an operator that never ran, found as much free in pieces.

    Also while a recorder takes the allocator's reports, as it does in iterations that sessions look at closely."""
    device = ready(program, expandable)
    trained = OTHERS_WITH_BYTES[program](device)
    losses = [trained.step().cpu() for _ in range(STEPS)]
    drawn, budget = torch.get_rng_state(), int(fraction * memory_stats(device).peak_bytes)
    del trained
    device = ready(program, expandable)
    trained = OTHERS_WITH_BYTES[program](device)
    recorder = core.DetailedRecorder(device, timed=False)
    with session(budget, device=device) as swapping:
        if recorded:
            recorder.start([])
        for loss in losses:
            assert torch.equal(trained.step().cpu(), loss)
        if recorded:
            recorder.stop()
    report = swapping.report()
    assert torch.equal(torch.get_rng_state(), drawn)
    assert report.counts.again > 0 and report.counts.retries <= report.counts.again
    assert (report.reserved_peak_bytes or 0) <= budget


@pytest.mark.parametrize(("fraction", "expandable"), [(0.45, False), (0.5, True), (0.6, True)])
def test_attention_in_mixed_precision_runs_again_in_whichever_iteration(fraction: float, expandable: bool) -> None:
    """It asks 15 times, and failed in the third step, or in the first where a budget has less than four pages."""

    def losses(device: torch.device, budget: int | None) -> list[torch.Tensor]:
        torch.manual_seed(0)
        layers = [torch.nn.TransformerEncoderLayer(96, 4, 384, batch_first=True) for _ in range(3)]
        model = torch.nn.Sequential(*layers).to(device)
        optimizer, data = torch.optim.AdamW(model.parameters()), torch.randn(64, 96, 96).to(device)
        found = []
        with nullcontext() if budget is None else session(budget, device=device):
            for _ in range(4):
                with torch.autocast(device.type, dtype=torch.bfloat16):
                    loss = model(data).square().mean()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                found.append(loss.detach().cpu())
        return found

    allocator = CachingAllocator(expandable_segments=expandable)
    device = use_sim(allocator=allocator).device
    plain = losses(device, None)
    budget = int(fraction * memory_stats(device).peak_bytes)
    device = use_sim(allocator=allocator).device
    assert all(map(torch.equal, losses(device, budget), plain))
    assert memory_stats(device).reserved_peak_bytes <= budget


def test_hooks_are_not_told_twice_of_what_autograd_saves() -> None:
    """Nor more often where a budget is too small for an operator of the forward pass, which then fails as before."""
    told = [0, 0]

    def step(number: int, trained: Trained) -> None:
        def pack(saved: torch.Tensor) -> torch.Tensor:
            told[number] += 1
            return saved

        with saved_tensors_hooks(pack, lambda saved: saved):
            trained.step()

    step(0, OTHERS_WITH_BYTES["autoencoder"](ready("autoencoder", True)))
    device = ready("autoencoder", True)
    trained = OTHERS_WITH_BYTES["autoencoder"](device)
    swapping = session("91MiB", device=device)
    with suppress(torch.OutOfMemoryError):
        step(1, trained)
    assert 0 < told[1] <= told[0]
    swapping.close()


@pytest.mark.parametrize(
    ("name", "overload", "twice"),
    [
        ("aten::convolution_backward", "", True),
        ("aten::scaled_dot_product_attention", "", True),
        ("aten::cat", "", True),
        ("aten::_foreach_mul", "Scalar", True),
        ("aten::add_", "Tensor", False),
        ("aten::mm", "out", False),
        ("aten::_foreach_add_", "List", False),
        ("aten::_backward", "", False),  # returns nothing
        ("aten::record_stream", "", False),
        ("prims::add", "", False),  # not PyTorch's own kernels
    ],
)
def test_what_can_be_done_twice(name: str, overload: str, twice: bool) -> None:
    torch.ops.prims.add  # noqa: B018  # registered once it is asked for
    assert core.is_repeatable(name, overload) == twice


def test_who_writes_in_secret_is_not_done_twice() -> None:
    device = use_sim(allocator=CachingAllocator()).device
    session("64MiB", device=device).close()
    known = {name.partition(".")[0] for name in torch._C._dispatch_get_all_op_names()}
    secret = sorted(known & {*UNDECLARED_WRITES, *UNDECLARED_WRITES_OF_OTHER_DEVICES})
    assert "aten::native_batch_norm" in secret
    assert [name for name in secret if core.is_repeatable(name, "")] == []


def test_operators_that_go_that_way_give_what_they_give() -> None:
    """In a loop of PyTorch's own, too, which is dispatched in Python."""
    let_pass("TESTING_ONLY_GenericWrapper")
    data = torch.randn(8, 8, requires_grad=True)

    def losses() -> list[torch.Tensor]:
        torch.manual_seed(3)
        loss = torch.nn.functional.dropout(data @ data, 0.5).sum() + torch.cat([data, data]).sum()
        looped = _ops._higher_order_ops["cond"](True, lambda x: x.sin(), lambda x: x.cos(), (data,))
        return [loss, *torch.autograd.grad(loss, data), looped]

    plain = losses()
    core.run_again(True)
    try:
        assert all(map(torch.equal, losses(), plain))
    finally:
        core.run_again(False)


def test_an_arena_that_was_made_anew_often_is_not_given_away() -> None:
    """A GRU's states of 1 MiB crowd it in the first iteration; from the second on there was none, and retries."""
    device = use_sim(allocator=CachingAllocator(), shapes_only=True).device
    trained = OTHERS_WITH_BYTES["recurrent"](device)
    with session("138MiB", device=device) as swapping:
        for _ in range(3):
            trained.step()
        assert swapping._engine.pool_bytes > 0
    assert swapping.report().counts.retries == 0
    del trained
    use_sim()
