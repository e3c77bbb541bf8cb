"""What stands in for something else does its work, and is gone afterwards."""

import inspect
import weakref

import pytest
import torch
from torch import nn

from runtime.blocks.replacing import Alias, autocast_clearing, forward_replaced


def test_an_alias_has_the_storage_and_the_gradient_but_does_not_hold_the_tensor() -> None:
    weight = torch.ones(3, requires_grad=True)
    tensor = 2 * weight
    alias = Alias.apply(tensor)  # type: ignore[no-untyped-call]
    assert alias.untyped_storage()._cdata == tensor.untyped_storage()._cdata
    assert not alias.is_leaf and not alias._is_view()  # else autocast would cache copies of it
    alive = weakref.ref(tensor)
    del tensor
    assert alive() is None
    alias.sum().backward()
    assert weight.grad is not None and weight.grad.tolist() == [2, 2, 2]


def test_a_forward_comes_back_after_a_failure() -> None:
    module = nn.Linear(2, 2)
    with pytest.raises(LookupError), forward_replaced(module, lambda given: -given):
        assert module(torch.ones(1)).tolist() == [-1]
        raise LookupError
    assert "forward" not in vars(module)
    assert module(torch.ones(1, 2)).shape == (1, 2)


def test_autocast_tells_when_its_copies_are_gone() -> None:
    """Contexts inside another drop nothing."""
    weight, told = torch.ones(2, 2, requires_grad=True), list[str]()
    clear = torch.clear_autocast_cache
    with autocast_clearing(lambda: told.append("dropped")):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                torch.ones(2, 2) @ weight
            told.append("inner over")
        told.append("outer over")
    assert told == ["inner over", "dropped", "outer over"]
    assert torch.clear_autocast_cache is clear


def test_another_forward_takes_what_the_module_s_own_takes() -> None:
    """Trainers ask for the names, to pick columns of their data."""
    module = nn.Linear(2, 2)
    with forward_replaced(module, lambda *args, **kwargs: None):
        assert list(inspect.signature(module.forward).parameters) == ["input"]
