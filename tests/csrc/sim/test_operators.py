"""What programs do with tensors of a device: index, print, save, copy, seed, and be refused where a GPU refuses."""

import copy
import io
import subprocess
import sys

import pytest
import torch

from runtime.device import SimDevice


def grid() -> torch.Tensor:
    return torch.arange(12.0).view(3, 4)


@pytest.mark.parametrize(
    "operation",
    [
        lambda a: a.t()[1:, ::2].contiguous(),
        lambda a: a[a > 5],
        lambda a: a[torch.tensor([2, 0])],
        lambda a: a[:, torch.tensor([True, False, True, False])],
        lambda a: a.clone().index_put_((torch.tensor([0, 1]),), torch.tensor(7.0)),
        lambda a: torch.cat([a, a], 1),
        lambda a: torch.stack(a.unbind(0)),
        lambda a: torch.linalg.svd(a)[1],
        lambda a: torch.add(a, a, out=torch.empty(0, device=a.device)),
        lambda a: (a > 3).nonzero(),
        lambda a: a.to(torch.bfloat16),
        lambda a: a + torch.tensor(1.5),
        lambda a: 2 ** a.half(),
        lambda a: torch.where(a > 3, a, 0),
        lambda a: torch.view_as_complex(a.view(3, 2, 2)).conj().mul(2).resolve_conj().real,
        lambda a: a.to(torch.complex64).conj().clone().imag,
        lambda a: a.sort(descending=True).indices,
        lambda a: a.unique(),
        lambda a: torch.einsum("ij,kj->ik", a, a),
        lambda a: a.new_empty(0).set_(a.untyped_storage(), 1, (2, 2), (4, 1)),
        lambda a: torch.nn.functional.embedding(torch.tensor([[1, 2]], device=a.device), a),
        lambda a: torch.special.airy_ai(a),
        lambda a: torch._foreach_add([a, a], 1.0)[1],
        lambda a: torch.randperm(5, device=a.device) * 0,
        lambda a: torch.full_like(a, 3).masked_fill_(a > 2, -1),
    ],
)
def test_operators_do_what_the_cpu_does(sim: SimDevice, operation: object) -> None:
    assert callable(operation)
    on_cpu, on_sim = operation(grid()), operation(grid().to("sim"))
    assert on_sim.device == sim.device
    assert on_sim.dtype == on_cpu.dtype and on_sim.stride() == on_cpu.stride()
    assert torch.equal(on_sim.cpu(), on_cpu)


@pytest.mark.parametrize(
    "operation",
    [
        lambda a: torch.add(a[:-1], 1, out=a[1:]),
        lambda a: a[1:].add_(a[:-1]),
        lambda a: a.view(12)[:9].view(3, 3).mul_(a.view(12)[:9].view(3, 3).t()),
        lambda a: a[1:].copy_(a[:-1]),
        lambda a: a.view(12)[:9].view(3, 3).copy_(a.view(12)[:9].view(3, 3).t()),
    ],
)
def test_writing_what_the_operator_reads_elsewhere_is_refused_as_on_the_cpu(sim: SimDevice, operation: object) -> None:
    assert callable(operation)
    for device in ("cpu", "sim"):
        with pytest.raises(RuntimeError, match="refer to a single memory location"):
            operation(grid().to(device))


def test_a_tensor_may_be_its_own_operand(sim: SimDevice) -> None:
    a, b = grid(), grid().to("sim")
    for each in (a, b):
        each.copy_(each)
        each.mul_(each).add_(each.view(12).view(3, 4))
        torch._foreach_add_([each[0], each[1]], [each[2], each[2]])
    assert torch.equal(a, b.cpu())


def test_out_arguments_grow(sim: SimDevice) -> None:
    out = torch.empty(2, device="sim")
    with pytest.warns(UserWarning, match="resized"):
        torch.add(grid().to("sim"), 1, out=out)
    assert torch.equal(out.cpu(), grid() + 1)


@pytest.mark.parametrize(
    "mix",
    [
        lambda a: a + grid(),
        lambda a: grid() @ a.t(),
        lambda a: torch.cat([a, grid()]),
        lambda a: torch.add(a, a, out=torch.empty(3, 4)),
        lambda a: torch.tensor(1.0).add_(a.sum()),
        lambda a: torch.nn.functional.linear(a, torch.ones(2, 4)),
        lambda a: a.index_add_(0, torch.tensor([0]), torch.ones(1, 4)),
        lambda a: torch._foreach_add([a], [grid()]),
    ],
)
def test_operands_of_two_devices_are_refused(sim: SimDevice, mix: object) -> None:
    assert callable(mix)
    with pytest.raises(RuntimeError, match=r"Expected all tensors to be on the same device.*sim:0 and cpu"):
        mix(grid().to("sim"))


def test_numpy_is_refused(sim: SimDevice) -> None:
    with pytest.raises(TypeError, match="sim"):
        grid().to("sim").numpy()


def test_a_tensor_prints_and_lists(sim: SimDevice) -> None:
    a = grid().to("sim")
    assert str(a).endswith("device='sim:0')") and "11." in str(a)
    assert a.tolist() == grid().tolist()


def test_saving_and_loading_keeps_the_device(sim: SimDevice) -> None:
    file = io.BytesIO()
    torch.save({"a": grid().to("sim")}, file)
    file.seek(0)
    loaded = torch.load(file)["a"]
    assert loaded.device == sim.device and torch.equal(loaded.cpu(), grid())
    file.seek(0)
    assert torch.load(file, map_location="cpu")["a"].is_cpu


def test_deep_copies_are_their_own_memory(sim: SimDevice) -> None:
    model = torch.nn.Linear(3, 3).to("sim")
    twin = copy.deepcopy(model)
    with torch.no_grad():
        model.weight.zero_()
    assert twin.weight.device == sim.device and twin.weight.abs().sum().item() > 0


def test_generators(sim: SimDevice) -> None:
    first, second = (torch.Generator("sim").manual_seed(3) for _ in range(2))
    a = torch.randn(4, device="sim", generator=first)
    assert first.device == sim.device
    assert torch.equal(a, torch.randn(4, device="sim", generator=second))
    state = first.get_state()
    b = torch.randn(4, device="sim", generator=first)
    first.set_state(state)
    assert torch.equal(b, torch.randn(4, device="sim", generator=first))
    assert torch.equal(a.cpu(), torch.randn(4, generator=torch.Generator().manual_seed(3)))
    with pytest.raises(RuntimeError, match="Expected a 'sim' device type for generator but found 'cpu'"):
        torch.randn(4, device="sim", generator=torch.Generator())


def test_one_seed_serves_both_devices(sim: SimDevice) -> None:
    torch.manual_seed(9)
    state = torch.get_device_module("sim").get_rng_state()
    a = torch.rand(5, device="sim")
    torch.get_device_module("sim").set_rng_state(state)
    assert torch.equal(torch.rand(5), a.cpu())


def test_pinned_tensors(sim: SimDevice) -> None:
    assert not grid().is_pinned()
    assert grid().pin_memory().is_pinned() and torch.empty(3, pin_memory=True).is_pinned()
    data = torch.utils.data.TensorDataset(torch.arange(4.0))
    batches = torch.utils.data.DataLoader(data, batch_size=2, pin_memory=True)
    assert [batch[0].is_pinned() for batch in batches] == [True, True]


@pytest.mark.parametrize(
    ("operation", "dtype"),
    [
        (lambda a: a @ a.t(), torch.bfloat16),
        (lambda a: torch.nn.functional.linear(a, a), torch.bfloat16),
        (lambda a: torch.nn.functional.scaled_dot_product_attention(a[None], a[None], a[None]), torch.bfloat16),
        (lambda a: a.bfloat16().softmax(-1), torch.float32),
        (lambda a: torch.nn.functional.mse_loss(a.bfloat16(), a.bfloat16()), torch.float32),
        (lambda a: torch.nn.functional.layer_norm(a.bfloat16(), (4,)), torch.float32),
        (lambda a: a.bfloat16().norm(), torch.float32),
        (lambda a: torch.addcmul(a, a.bfloat16(), a), torch.float32),
        (lambda a: a.bfloat16() + 1, torch.bfloat16),
    ],
)
def test_autocast_casts_what_it_does_on_accelerators(sim: SimDevice, operation: object, dtype: torch.dtype) -> None:
    assert callable(operation)
    with torch.autocast("sim", dtype=torch.bfloat16):
        assert operation(grid().to("sim")).dtype == dtype


def test_autocast_gives_the_numbers_of_casts_by_hand(sim: SimDevice) -> None:
    weight = torch.randn(3, 4, device="sim", requires_grad=True)
    with torch.autocast("sim", dtype=torch.bfloat16):
        torch.nn.functional.linear(grid().to("sim"), weight).float().sum().backward()  # type: ignore[no-untyped-call]
    by_hand = weight.detach().cpu().requires_grad_()
    product = torch.nn.functional.linear(grid().bfloat16(), by_hand.bfloat16())
    product.float().sum().backward()  # type: ignore[no-untyped-call]
    assert weight.grad is not None and by_hand.grad is not None
    assert weight.grad.dtype == torch.float32 and torch.equal(weight.grad.cpu(), by_hand.grad)


def test_autocast_refuses_a_loss_that_underflows(sim: SimDevice) -> None:
    share = torch.full((3,), 0.5, device="sim")
    with (
        pytest.raises(RuntimeError, match="unsafe under autocast: use binary_cross_entropy_with_logits"),
        torch.autocast("sim", dtype=torch.float16),
    ):
        torch.nn.functional.binary_cross_entropy(share, share)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.float32])
def test_histograms_count_integers_as_cuda_does(sim: SimDevice, dtype: torch.dtype) -> None:
    counts = torch.histc(torch.tensor([0, 1, 1, 3], dtype=dtype, device="sim"), bins=4, min=0, max=3)
    assert counts.dtype == dtype and counts.tolist() == [1, 2, 0, 1]


def test_inference_mode(sim: SimDevice) -> None:
    a = grid().to("sim")
    with torch.inference_mode():
        b = (a * 2).t().add_(1)
    assert b.is_inference() and torch.equal(b.cpu(), (grid() * 2).t() + 1)


def run_alone(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_the_extension_registers_nothing(sim: SimDevice) -> None:
    told = run_alone(
        "import torch, runtime._sim, runtime.device; print(torch._C._get_privateuse1_backend_name(), "
        "torch.accelerator.is_available())"
    )
    assert told == "privateuseone False"


def test_the_device_may_come_after_the_first_backward(sim: SimDevice) -> None:
    told = run_alone(
        "import torch; torch.ones(2, requires_grad=True).sum().backward();"
        "from runtime.device import use_sim; use_sim();"
        "x = torch.ones(2, device='sim', requires_grad=True); (x * 3).sum().backward(); print(x.grad.tolist())"
    )
    assert told == "[3.0, 3.0]"
