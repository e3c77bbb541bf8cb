"""The same program gives the same bits on sim as on the CPU."""

import pytest
import torch

from runtime.device import SimDevice
from tests.csrc.sim.gpt import Trainer

OPTIMIZERS = {"single": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}, "default": {}}


@pytest.mark.parametrize("recompute", [False, True], ids=["plain", "checkpointed"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS.keys())
def test_gpt_trains_bit_identically(sim: SimDevice, optimizer: dict[str, bool], recompute: bool) -> None:
    on_cpu = Trainer("cpu", optimizer=optimizer, recompute=recompute).run()
    on_sim = Trainer("sim", optimizer=optimizer, recompute=recompute).run()
    assert on_sim.equals(on_cpu)
    assert sim.counters().kernels > 100
    assert sim.races() == []


def test_the_bits_do_not_depend_on_the_modelled_machine(sim: SimDevice) -> None:
    reference = Trainer("sim").run()
    sim.set_capacity(8 << 20)
    assert Trainer("sim").run().equals(reference)


def test_a_thread_count_set_after_the_first_backward_reaches_autograd(sim: SimDevice) -> None:
    """The engine's thread keeps the count it began with; sums would then be split otherwise than on the CPU."""
    torch.ones(1, device="sim", requires_grad=True).backward()  # type: ignore[no-untyped-call]
    before = torch.get_num_threads()
    torch.set_num_threads(before + 1)
    try:
        on_cpu = Trainer("cpu", width=128, batch=8, time=32).run(2)
        assert Trainer("sim", width=128, batch=8, time=32).run(2).equals(on_cpu)
    finally:
        torch.set_num_threads(before)


def test_dropout_draws_the_numbers_that_the_cpu_draws(sim: SimDevice) -> None:
    torch.manual_seed(5)
    on_cpu = torch.nn.functional.dropout(torch.ones(1000), 0.5)
    torch.manual_seed(5)
    assert torch.equal(torch.nn.functional.dropout(torch.ones(1000, device="sim"), 0.5).cpu(), on_cpu)


@pytest.mark.parametrize("mask", ["none", "causal", "boolean", "additive"])
@pytest.mark.parametrize("grad", [False, True], ids=["inference", "training"])
def test_attention_is_the_cpus(sim: SimDevice, mask: str, grad: bool) -> None:
    query, key, value = torch.randn(3, 2, 4, 16, 8).unbind()
    masks = {"boolean": torch.ones(16, 16).tril().bool(), "additive": torch.randn(16, 16)}

    def run(device: str) -> list[torch.Tensor]:
        inputs = [t.detach().to(device).requires_grad_(grad) for t in (query, key, value)]
        given = masks[mask].to(device) if mask in masks else None
        q, k, v = inputs
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=given, is_causal=mask == "causal")
        if grad:
            out.sum().backward()  # type: ignore[no-untyped-call]
        return [out.detach().cpu(), *(t.grad.cpu() for t in inputs if t.grad is not None)]

    assert all(torch.equal(mine, cpus) for mine, cpus in zip(run("sim"), run("cpu"), strict=True))


def test_convolution_and_its_gradients_are_the_cpus(sim: SimDevice) -> None:
    torch.manual_seed(0)
    image = torch.randn(2, 3, 16, 16)

    def run(device: str) -> list[torch.Tensor]:
        torch.manual_seed(1)
        net = torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.MaxPool2d(2)
        ).to(device)
        net(image.to(device)).square().sum().backward()
        return [p.grad.cpu() for p in net.parameters() if p.grad is not None]

    on_sim, on_cpu = run("sim"), run("cpu")
    assert len(on_sim) == 4
    assert all(torch.equal(mine, cpus) for mine, cpus in zip(on_sim, on_cpu, strict=True))
