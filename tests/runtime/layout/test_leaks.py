"""Graphs that no backward consumes leave nothing on the device."""

import gc

import torch

from runtime.device import SimDevice, memory_stats
from runtime.layout import unwrap
from solvers.ir.layout import LayoutPlan, Policy
from tests.runtime.layout.models import Looking, loss_of
from tests.runtime.layout.training import Layouts


def test_kept_graphs_that_nobody_consumes_go_with_the_loss(sim: SimDevice) -> None:
    """What softmax returns it saves: kept as it is, it held its own graph, which the collector does not see."""
    layouts = Layouts(Looking)
    policies: tuple[Policy, ...] = ("keep", "checkpoint", "swap")
    for policy in policies:
        chosen = tuple(policy if block.choice else "keep" for block in layouts.problem.blocks)
        plan = LayoutPlan(persistent=(), buffers=len(layouts.problem.chunks), policies=chosen)
        model, optimizer = layouts.wrapped(plan, overlap=False)
        held = set[int]()
        for step in range(3):
            loss = loss_of(model, step)
            loss.backward(retain_graph=True)  # type: ignore[no-untyped-call]
            optimizer.step()
            optimizer.zero_grad()
            del loss
            gc.collect()
            held.add(memory_stats(sim.device).allocated_bytes)
        unwrap(model)
        assert held == {0}, policy
        del model, optimizer
    assert torch.accelerator.is_available()
