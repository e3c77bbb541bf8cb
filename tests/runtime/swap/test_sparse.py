"""Sparse gradients that leave: what they are made of comes back when an operator reads the sparse tensor."""

from collections.abc import Callable, Iterable

import pytest
import torch
from torch import Tensor, nn

from runtime.device import SimDevice
from runtime.profile.step import profile_step
from runtime.swap import session

ROWS, WIDTH, BATCH = 5000, 64, 512
Optimizer = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]
OPTIMIZERS: dict[str, Optimizer] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    "adam": lambda parameters: torch.optim.SparseAdam([*parameters], lr=0.01),
    "adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=0.01),
}


class Training:
    """Four bags of words through dense layers; the bags' gradients are sparse."""

    def __init__(self, optimizer: Optimizer) -> None:
        torch.manual_seed(5)
        self.bags = nn.ModuleList(nn.EmbeddingBag(ROWS, WIDTH, mode="sum", sparse=True) for _ in range(4)).to("sim")
        layers = [nn.Linear(4 * WIDTH, 512), nn.GELU(), nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 1)]
        self.dense = nn.Sequential(*layers).to("sim")
        self.optimizers = optimizer(self.bags.parameters()), torch.optim.AdamW(self.dense.parameters())

    def step(self) -> Tensor:
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        words = [torch.randint(0, ROWS, (BATCH, 8)).to("sim") for _ in self.bags]
        features = torch.cat([bag(word) for bag, word in zip(self.bags, words, strict=True)], dim=1)
        loss: Tensor = self.dense(features).square().mean()
        loss.backward()  # type: ignore[no-untyped-call]
        for optimizer in self.optimizers:
            optimizer.step()
        return loss.detach()

    def numbers(self) -> list[Tensor]:
        """Gradients and parameters."""
        found = [*self.bags.parameters(), *self.dense.parameters()]
        gradients = [parameter.grad for parameter in found if parameter.grad is not None]
        return [tensor.detach().cpu().to_dense() for tensor in (*gradients, *found)]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_sparse_gradients_train_the_same_within_a_tight_budget(sim: SimDevice, name: str) -> None:
    plain = Training(OPTIMIZERS[name])
    plain.step()
    torch.accelerator.reset_peak_memory_stats()
    losses = [plain.step().cpu() for _ in range(7)]
    peak, expected = torch.accelerator.max_memory_allocated(), plain.numbers()
    del plain
    watched = Training(OPTIMIZERS[name])
    watched.step()
    with session(int(0.75 * peak)) as swapping:
        found = [watched.step().cpu() for _ in range(7)]
        report = swapping.report()
    assert all(torch.equal(one, other) for one, other in zip(found, losses, strict=True))
    assert all(torch.equal(one, other) for one, other in zip(watched.numbers(), expected, strict=True))
    assert report.within_budget and report.iterations == 7


def test_a_profile_lists_what_sparse_tensors_are_made_of(sim: SimDevice) -> None:
    training = Training(OPTIMIZERS["sgd"])
    graph = profile_step(training.step, "sim")
    sizes = {tensor.id: tensor.bytes for tensor in graph.tensors}
    updates = [op for op in graph.ops if op.name.startswith("aten::add_")]
    read = [sizes[i] for op in updates for i in op.inputs]
    assert read.count(BATCH * 8 * WIDTH * 4) >= len(training.bags), sorted({op.name for op in graph.ops})
