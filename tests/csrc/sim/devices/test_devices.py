"""Two devices side by side: each with streams, clocks, memory and random numbers of its own."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from runtime.device import SimDevice, clock, limited_memory, memory_stats, use_sim
from solvers.ir.errors import InvalidInput
from tests.csrc.sim.devices.conftest import LAUNCH, linked

Machine = Callable[..., SimDevice]


def test_a_program_names_the_devices_that_there_are(machine: Machine) -> None:
    sim = machine(devices=3)
    assert torch.accelerator.device_count() == torch.get_device_module("sim").device_count() == sim.devices == 3
    for index in range(3):
        assert torch.ones(2, device=f"sim:{index}").device == torch.device("sim", index) == sim.at(index).device
    with torch.accelerator.device_index(2):
        assert torch.ones(2, device="sim").device.index == torch.accelerator.current_stream().device.index == 2
    with torch.get_device_module("sim").device(1):
        assert (
            torch.empty_strided((2,), (1,), device="sim").device.index == torch.accelerator.current_device_index() == 1
        )
    assert torch.ones(2, device="sim").device.index == 0
    assert torch.arange(3, device="sim:1").device.index == torch.eye(2, device="sim:2").device.index - 1 == 1
    with pytest.raises(RuntimeError, match="there are 3 devices sim, not sim:3: use sim:0 to sim:2"):
        torch.ones(2, device="sim:3")
    with pytest.raises(InvalidInput, match=r"index of 3 is outside \[0, 3\)"):
        sim.at(3)


def test_how_many_there_are_changes_while_nothing_is_on_those_that_go(machine: Machine) -> None:
    machine(devices=2)
    held = torch.ones(128, device="sim:1")
    with pytest.raises(
        InvalidInput, match="device sim:1 holds 512 bytes of tensors, so use_sim cannot leave 1 devices"
    ):
        use_sim()
    del held
    assert machine(devices=5).devices == 5
    assert use_sim().devices == 1
    with pytest.raises(RuntimeError, match="there is one device sim, not sim:1: use sim:0"):
        torch.ones(2, device="sim:1")
    with pytest.raises(InvalidInput, match=r"devices of 65 is outside \[1, 65\): ask for 1 to 64"):
        machine(devices=65)
    with pytest.raises(InvalidInput, match="hardware 'linked' describes 2 devices, not 3: ask for fewer"):
        machine(linked("ab", ()), devices=3)


class Halves(nn.Module):
    """Two layers, the second on a device of its own."""

    def __init__(self, devices: tuple[str, str]) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.first, self.second = nn.Linear(24, 40).to(devices[0]), nn.Linear(40, 8).to(devices[1])

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.tanh(self.first(x.to(self.first.weight.device)))
        out: Tensor = self.second(hidden.to(self.second.weight.device))
        return out


def _trained(devices: tuple[str, str]) -> list[Tensor]:
    model = Halves(devices)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    torch.manual_seed(8)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(16, 24)).square().mean().backward()
        optimizer.step()
    assert all(p.grad is not None and p.grad.device == p.device for p in model.parameters())
    return [p.detach().cpu() for p in model.parameters()]


def test_autograd_crosses_devices_and_back(machine: Machine) -> None:
    """A model split over two devices, trained by the engine's thread for each: bit for bit as on the CPU."""
    expected = _trained(("cpu", "cpu"))
    sim = machine()
    for trained in (_trained(("sim:0", "sim:1")), _trained(("sim:1", "sim:0"))):
        assert all(torch.equal(a, b) for a, b in zip(trained, expected, strict=True))
    assert sim.races() == []


@pytest.mark.parametrize(
    "mixed",
    [
        lambda a, b: a + b,
        lambda a, b: torch.cat([a, b]),
        lambda a, b: a.add_(b),
        lambda a, b: a + b.sum(),
        lambda a, b: torch.nn.functional.linear(a, b),
    ],
)
def test_operands_of_two_devices_are_refused(machine: Machine, mixed: Callable[[Tensor, Tensor], Tensor]) -> None:
    machine()
    a, b = torch.ones(4, 4, device="sim:0"), torch.ones(4, 4, device="sim:1")
    with pytest.raises(RuntimeError, match="found at least two devices, sim:0 and sim:1!"):
        mixed(a, b)
    with pytest.raises(RuntimeError, match="found at least two devices, sim:1 and cpu"):
        b + torch.ones(4, 4)
    assert (b + torch.tensor(1.0)).device == b[torch.tensor([0, 1])].device == b.device


def test_memory_is_each_devices_own(machine: Machine) -> None:
    sim = machine(capacity_bytes=[1 << 20, 1 << 22])
    assert [sim.at(index).capacity_bytes for index in range(2)] == [1 << 20, 1 << 22]
    small, large = torch.ones(1 << 10, device="sim:0"), torch.ones(1 << 18, device="sim:1")
    (large * 2).sum()
    assert [sim.at(index).memory().allocated_bytes for index in range(2)] == [1 << 12, 1 << 20]
    assert sim.at(0).memory().peak_bytes == 1 << 12 < 1 << 21 == memory_stats(large.device).peak_bytes - 512
    with pytest.raises(torch.OutOfMemoryError, match=f"does not fit, 4096 of {1 << 20} bytes are in use"):
        torch.empty(1 << 20, dtype=torch.uint8, device="sim:0")
    with limited_memory(torch.device("sim:1"), 1 << 20), pytest.raises(torch.OutOfMemoryError):
        large.clone()
    assert (small.clone().device.index, large.clone().device.index) == (0, 1)
    assert [sim.at(index).memory().ooms for index in range(2)] == [1, 1]
    with pytest.raises(InvalidInput, match="capacity_bytes gives 3 devices' memory, not 2: give each its own"):
        machine(capacity_bytes=[1 << 24] * 3)


def test_segments_are_each_devices_own(machine: Machine) -> None:
    sim = machine(allocator="caching")
    held = torch.ones(1 << 18, device="sim:1")
    told = sim.at(1).snapshot()["segments"]
    assert [(one["device"], one["total_size"], one["allocated_size"]) for one in told] == [(1, 2 << 20, held.nbytes)]
    assert sim.at(0).snapshot()["segments"] == []
    assert [sim.at(index).memory().reserved_bytes for index in range(2)] == [0, 2 << 20]


def test_a_storage_grows_and_is_shared_on_its_own_device(machine: Machine) -> None:
    sim = machine()
    tensor = torch.arange(4, device="sim:1")
    lazy = torch._lazy_clone(tensor)
    lazy += 1
    tensor.untyped_storage().resize_(1 << 12)
    tensor.set_()  # type: ignore[call-overload]
    stored = torch.UntypedStorage(4, device="sim:1")  # type: ignore[no-untyped-call]
    assert lazy.tolist() == [1, 2, 3, 4]
    assert stored.device == tensor.untyped_storage().device == lazy.device == sim.at(1).device
    assert sim.at(0).memory().peak_bytes == 0


def test_sparse_gradients_stay_on_their_device(machine: Machine) -> None:
    sim = machine()
    embedding = nn.Embedding(10, 3, sparse=True).to("sim:1")
    embedding(torch.tensor([1, 4, 1], device="sim:1")).sum().backward()
    grad = embedding.weight.grad
    assert grad is not None and grad.is_sparse
    assert grad.device == grad._indices().device == grad._values().device == sim.at(1).device
    assert grad.to_dense().sum(1).tolist() == [0, 6, 0, 0, 3, 0, 0, 0, 0, 0]
    assert torch.empty(2, layout=torch.sparse_coo, device="sim:1").device == grad.device
    assert sim.at(0).memory().peak_bytes == 0


def test_streams_belong_to_a_device(machine: Machine) -> None:
    """Stream k of device d has the id 1000·d + k; each device has its own current one."""
    sim = machine()
    first, second = torch.Stream(device="sim:0"), torch.Stream(device="sim:1")
    assert (first.device.index, second.device.index) == (first.stream_id // 1000, second.stream_id // 1000) == (0, 1)
    sim.set_tracing(True)
    one, other = torch.ones(4, device="sim:0"), torch.ones(4, device="sim:1")
    second.wait_stream(torch.accelerator.current_stream(1))
    with second:
        other.mul_(2)
        one.mul_(2)
    assert [(record.op, record.stream) for record in sim.at(1).trace()] == [("fill_", 1000), ("mul_", second.stream_id)]
    assert [(record.op, record.stream) for record in sim.at(0).trace()] == [("fill_", 0), ("mul_", 0)]
    assert {record.device for record in sim.trace()} == {0, 1}


def test_one_thread_has_one_host(machine: Machine) -> None:
    """Launches on two devices come one after the other; what the host waited for on the one holds for the other."""
    sim = machine()
    one, other = torch.ones(1 << 20, device="sim:0"), torch.ones(1 << 20, device="sim:1")
    assert (sim.at(0).host_ns(), sim.at(1).host_ns()) == (LAUNCH, 2 * LAUNCH)
    assert (sim.now_ns(), sim.at(1).now_ns()) == (LAUNCH + 41_944, 2 * LAUNCH + 41_944)
    torch.accelerator.synchronize(1)
    one.mul_(2)
    assert sim.host_ns() == sim.at(1).now_ns() + LAUNCH
    assert clock(sim.at(1).device)() >= sim.host_ns()
    pinned = torch.empty(4).pin_memory()
    pinned.copy_(other[:4], non_blocking=True)
    torch.accelerator.synchronize(1)
    one[:4].copy_(pinned, non_blocking=True)
    sim.synchronize()
    assert sim.races() == []


def test_random_numbers_are_each_devices_own(machine: Machine) -> None:
    """Seeded alike, all give the CPU's numbers; drawing on one leaves the others where they are."""
    machine()

    def draws(device: str) -> list[Tensor]:
        x = torch.ones(100, device=device)
        drawn = [torch.randn(3, device=device), torch.nn.functional.dropout(x, 0.3), x.bernoulli(0.5)]
        return [one.cpu() for one in [*drawn, torch.randperm(20, device=device), torch.rand_like(x)]]

    torch.manual_seed(5)
    first = draws("sim:0")
    assert all(torch.equal(a, b) for a, b in zip(first, draws("sim:1"), strict=True))
    module = torch.get_device_module("sim")
    states = [module.get_rng_state(index) for index in range(2)]
    assert torch.equal(states[0], states[1])
    again = draws("sim:1")
    assert torch.equal(module.get_rng_state(0), states[0]) and not torch.equal(again[0], first[0])
    module.set_rng_state(states[1], 1)
    assert all(torch.equal(a, b) for a, b in zip(again, draws("sim:1"), strict=True))
    generator = torch.Generator("sim:1").manual_seed(5)
    assert generator.device.index == 1
    assert torch.equal(torch.randn(3, device="sim:1", generator=generator).cpu(), first[0])


def test_a_new_device_begins_with_the_seed_of_the_others(machine: Machine) -> None:
    torch.manual_seed(11)
    machine(devices=4)
    torch.manual_seed(12)
    drawn = [torch.randn(2, device=f"sim:{index}").cpu() for index in range(4)]
    assert all(torch.equal(one, drawn[0]) for one in drawn)


def test_shapes_only_on_several_devices(machine: Machine) -> None:
    """Time and memory of each device are those with bytes."""

    def program() -> list[tuple[int, int, int]]:
        first, second = (torch.ones(300, 70, device=f"sim:{index}", requires_grad=True) for index in range(2))
        ((first.tanh() * 3).to("sim:1") * second).sigmoid().sum().backward()  # type: ignore[no-untyped-call]
        sim.synchronize()
        return [(one.now_ns(), one.memory().peak_bytes, one.counters().kernels) for one in map(sim.at, range(2))]

    sim = machine()
    real = program()
    sim = machine(shapes_only=True)
    assert program() == real
    assert min(peak for _, peak, _ in real) > 0
