"""The comparison sees what it must see: one bit, a shape, a stride, a type, shared memory, a written input."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.csrc.sim.opinfo.copies import Copies
from tests.csrc.sim.opinfo.outcomes import difference, outcome
from tests.csrc.sim.opinfo.programs import Program
from tests.csrc.sim.opinfo.sweep import sweep


def _last_bit(tensor: Tensor) -> Tensor:
    return tensor.view(torch.int32).bitwise_xor(1).view(torch.float32)


CHANGES: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "last bit": (lambda t: _last_bit(t), "bytes differ"),
    "sign of zero": (lambda t: t * torch.tensor([-1.0, 1, 1, 1]), "1 of 16 bytes differ"),
    "type": (lambda t: t.double(), "dtype is"),
    "shape": (lambda t: t.view(2, 2), "shape is"),
    "stride": (lambda t: torch.stack([t, t], 1)[:, 0], "strides is"),
    "layout": (lambda t: t.to_sparse(), "layout is"),
    "gradient": (lambda t: t.clone().requires_grad_(), "requires_grad is True"),
    "negated": (lambda t: torch._neg_view(t.neg()), "neg is True"),
}


@pytest.mark.parametrize(("change", "told"), CHANGES.values(), ids=CHANGES)
def test_a_changed_result_is_a_difference(change: Callable[[Tensor], Tensor], told: str) -> None:
    copies = Copies("cpu")
    result = torch.tensor([0.0, 1.0, 2.0, 3.0])
    expected = outcome([result], copies)
    assert difference(expected, outcome([result.clone()], copies)) is None
    found = difference(expected, outcome([change(result)], copies))
    assert found is not None and told in found


def test_nan_is_equal_to_itself() -> None:
    copies = Copies("cpu")
    numbers = torch.tensor([float("nan"), 1.0])
    assert difference(outcome(numbers, copies), outcome(numbers.clone(), copies)) is None


def test_written_inputs_and_shared_memory_are_differences() -> None:
    sample = torch.arange(6.0).view(2, 3).t()

    def run(touch: Callable[[Tensor], Tensor]) -> object:
        copies = Copies("cpu")
        return outcome(touch(copies.of(sample)), copies)

    plain = run(lambda tensor: tensor.clone())
    assert difference(plain, run(lambda tensor: tensor.clone())) is None  # type: ignore[arg-type]
    written = difference(plain, run(lambda tensor: tensor.add_(1).sub(1)))  # type: ignore[arg-type]
    assert written == "the storage of input 0 holds other bytes after it"
    viewed = difference(plain, run(lambda tensor: tensor.view_as(tensor)))  # type: ignore[arg-type]
    assert viewed == "result 0: lies in input is 0, not None"


def test_copies_keep_strides_and_share_storages() -> None:
    whole = torch.arange(12.0, requires_grad=True)
    views = (whole.detach()[2:8:2], whole.detach().view(3, 4).t(), whole)
    copies = Copies("cpu")
    first, second, third = copies.of(views)
    assert [each.stride() for each in (first, second)] == [(2,), (1, 4)] and first.storage_offset() == 2
    assert first.untyped_storage()._cdata == second.untyped_storage()._cdata == third.untyped_storage()._cdata
    assert third.requires_grad and not first.requires_grad
    assert copies.of(views)[0] is first


def test_a_sweep_counts_each_program_once(sim: object) -> None:
    """One that is equal, one that both refuse, one that only sim refuses, two that differ."""

    def fail(copies: Copies, *devices: str) -> Tensor:
        if copies.device.type in devices:
            raise ValueError(f"no {copies.device.type} in 2024")
        return torch.zeros(1)

    runs: dict[str, Callable[[Copies], object]] = {
        "equal": lambda copies: torch.ones(2, device=copies.device),
        "both": lambda copies: fail(copies, "cpu", "sim"),
        "sim": lambda copies: fail(copies, "sim"),
        "cpu": lambda copies: fail(copies, "cpu"),
        "numbers": lambda copies: torch.tensor([1.0 if copies.device.type == "cpu" else 2.0]),
    }
    tally = sweep(Program(name, "float32", "forward", 0, run) for name, run in runs.items())
    assert (tally.tried["forward"], tally.equal["forward"], tally.refused_by_both["forward"]) == (5, 1, 1)
    assert tally.refused == {"ValueError: no sim in N": {"sim": 1}}
    assert tally.different == {
        "cpu (float32, forward, sample 0)": "runs, where the CPU raises ValueError: no cpu in 2024",
        "numbers (float32, forward, sample 0)": "result 0: 2 of 4 bytes differ (torch.float32)",
    }
