"""Sparse gradients, and the sparse tensors that they are."""

import io
from collections.abc import Callable, Iterable

import pytest
import torch
from torch import Tensor
from torch.nn import Parameter

from runtime.device import SimDevice
from runtime.swap import session

Optimizer = Callable[[Iterable[Parameter]], torch.optim.Optimizer]
OPTIMIZERS: dict[str, Optimizer] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "adam": lambda parameters: torch.optim.SparseAdam(parameters),
    "adagrad": lambda parameters: torch.optim.Adagrad(parameters),
}
NETS: dict[str, Callable[[], torch.nn.Module]] = {
    "embedding": lambda: torch.nn.Embedding(10, 4, sparse=True),
    "bag": lambda: torch.nn.EmbeddingBag(10, 4, sparse=True, mode="sum"),
    "padded": lambda: torch.nn.Embedding(10, 4, sparse=True, padding_idx=3, scale_grad_by_freq=False),
}


def train(device: str, net: Callable[[], torch.nn.Module], optimizer: Optimizer) -> list[Tensor]:
    """Losses, gradients and parameters of four steps; every second gradient is the sum of two."""
    torch.manual_seed(0)
    words, head = net().to(device), torch.nn.Linear(4, 2).to(device)
    step = optimizer(words.parameters())
    seen: list[Tensor] = []
    for number in range(4):
        for _ in range(1 + number % 2):
            loss = head(words(torch.randint(0, 10, (3, 5)).to(device))).square().sum()
            loss.backward()
        (weight,) = words.parameters()
        gradient = weight.grad
        assert gradient is not None and gradient.layout == torch.sparse_coo
        together = gradient.coalesce()
        seen += [loss, gradient.to_dense(), together.indices(), together.values(), together]
        step.step()
        step.zero_grad(set_to_none=number % 2 == 0)
        seen.append(weight.detach().clone())
    return [tensor.detach().cpu() for tensor in seen]


@pytest.mark.parametrize("net", NETS.values(), ids=NETS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_training_with_sparse_gradients_is_the_cpus(
    sim: SimDevice, net: Callable[[], torch.nn.Module], optimizer: Optimizer
) -> None:
    on_sim, on_cpu = train("sim", net, optimizer), train("cpu", net, optimizer)
    for mine, cpus in zip(on_sim, on_cpu, strict=True):
        assert mine.layout == cpus.layout
        assert torch.equal(mine.to_dense(), cpus.to_dense())


def test_training_with_sparse_gradients_in_a_session(sim: SimDevice) -> None:
    net, optimizer = NETS["embedding"], OPTIMIZERS["adam"]
    alone = train("sim", net, optimizer)
    with session("1GiB"):
        watched = train("sim", net, optimizer)
    for mine, theirs in zip(watched, alone, strict=True):
        assert torch.equal(mine.to_dense(), theirs.to_dense())


def grid(device: str) -> Tensor:
    """A sparse 3 by 4 matrix, one place given twice."""
    places, numbers = torch.tensor([[0, 2, 2], [1, 3, 3]]), torch.tensor([1.0, 2.0, 3.0])
    return torch.sparse_coo_tensor(places.to(device), numbers.to(device), (3, 4), check_invariants=True)


@pytest.mark.parametrize(
    "operation",
    [
        lambda a: a.coalesce(),
        lambda a: a + a,
        lambda a: a * 2,
        lambda a: a.clone().mul_(3),
        lambda a: a.clone().add_(a, alpha=2),
        lambda a: a.to_dense().add_(a),
        lambda a: torch.ones(3, 4, device=a.device) + a,
        lambda a: torch.sparse.mm(a, torch.ones(4, 2, device=a.device)),
        lambda a: torch.sparse.sum(a, 0),
        lambda a: a.t(),
        lambda a: a.clone().t_(),
        lambda a: a.index_select(0, torch.tensor([2], device=a.device)),
        lambda a: torch.ones(3, 4, device=a.device).sparse_mask(a.coalesce()),
        lambda a: a.to_dense().to_sparse(),
        lambda a: a.to(torch.float64),
        lambda a: a.clone().zero_(),
        lambda a: torch.cat([a, a]),
        lambda a: a.unsqueeze(0),
        lambda a: torch.empty_like(a),
        lambda a: a.clone().sparse_resize_((5, 6), 2, 0),
        lambda a: a.clone().sparse_resize_and_clear_((5, 6), 2, 0),
        lambda a: torch.zeros_like(a).copy_(grid("cpu")),
        lambda a: grid("cpu").mul_(5).copy_(a).to(a.device),
        lambda a: a.coalesce().pow(2),
        lambda a: a.to("cpu"),
    ],
)
def test_sparse_operators_are_the_cpus(sim: SimDevice, operation: Callable[[Tensor], Tensor]) -> None:
    on_cpu, on_sim = operation(grid("cpu")), operation(grid("sim"))
    assert (on_sim.layout, on_sim.shape, on_sim.dtype) == (on_cpu.layout, on_cpu.shape, on_cpu.dtype)
    if on_cpu.layout == torch.sparse_coo:
        assert on_sim.is_coalesced() == on_cpu.is_coalesced()
        assert torch.equal(on_sim._indices().cpu(), on_cpu._indices())
        assert torch.equal(on_sim._values().cpu(), on_cpu._values())
    assert torch.equal(on_sim.cpu().to_dense(), on_cpu.to_dense())


def test_sparse_tensors_move_print_and_are_saved(sim: SimDevice) -> None:
    there = grid("cpu").to("sim")
    assert there.device == sim.device and there._values().device == sim.device
    assert "device='sim:0'" in str(there)
    assert torch.equal(there.cpu().to_dense(), grid("cpu").to_dense())
    file = io.BytesIO()
    torch.save(there, file)
    file.seek(0)
    assert torch.equal(torch.load(file).cpu().to_dense(), grid("cpu").to_dense())


def test_a_sparse_tensors_parts_are_raced_and_counted(sim: SimDevice) -> None:
    """Reading it touches its indices and values: a kernel on another stream that does not wait is a race."""
    side = torch.Stream(device="sim")
    there = grid("sim")
    there._values().mul_(2)
    with side, pytest.raises(RuntimeError, match="race on a device block of 12 bytes: read by '_to_dense'"):
        there.to_dense()


def test_compressed_sparse_tensors_are_refused_by_name(sim: SimDevice) -> None:
    compressed = grid("cpu").coalesce().to_sparse_csr()
    with pytest.raises((RuntimeError, NotImplementedError), match="sim"):
        compressed.to("sim") @ torch.ones(4, 2, device="sim")
