"""What a program left behind on a device, in a form in which two devices can be compared bit by bit."""

import re
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from tests.csrc.sim.opinfo.copies import Copies


@dataclass(frozen=True)
class Image:
    """A tensor as it was: what describes it, and its elements' bytes."""

    facts: dict[str, Any]
    content: tuple[bytes, ...]


@dataclass(frozen=True)
class Outcome:
    """Results and inputs after a program, or the error that ended it."""

    results: tuple[Any, ...] = ()
    inputs: tuple[bytes, ...] = ()
    error: str | None = None
    sentence: str = ""


def image(tensor: Tensor, copies: Copies) -> Image:
    """What a tensor holds now, and which of the inputs' storages it lies in."""
    facts = {
        "dtype": tensor.dtype,
        "shape": tuple(tensor.shape),
        "layout": tensor.layout,
        "requires_grad": tensor.requires_grad,
    }
    tensor = tensor.detach()
    if tensor.layout == torch.sparse_coo:
        facts["coalesced"] = tensor.is_coalesced()
        return Image(facts, (content(tensor._indices()), content(tensor._values())))
    if tensor.layout != torch.strided:
        parts = tensor.cpu()
        rows = parts.layout in (torch.sparse_csr, torch.sparse_bsr)
        indices = (parts.crow_indices(), parts.col_indices()) if rows else (parts.ccol_indices(), parts.row_indices())
        return Image(facts, (*map(content, indices), content(parts.values())))
    if tensor.numel() > 0:  # a stride over a single element moves nothing
        facts["strides"] = [stride for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1]
    facts |= {"conj": tensor.is_conj(), "neg": tensor.is_neg(), "zero": tensor._is_zerotensor()}
    if not tensor._is_zerotensor():
        facts["lies in input"] = copies.place_of(tensor)
    return Image(facts, (content(tensor),))


def content(tensor: Tensor) -> bytes:
    """The bytes of a tensor's elements."""
    if tensor._is_zerotensor():
        tensor = tensor.clone()
    host = tensor.resolve_conj().resolve_neg().cpu().contiguous()
    return host.reshape(-1).view(torch.uint8).numpy().tobytes()


def outcome(results: Any, copies: Copies) -> Outcome:
    """The images of all tensors in the results, the other results as text, and the inputs' storages."""
    leaves = tuple(
        image(leaf, copies) if isinstance(leaf, Tensor) else re.sub(r"0x[0-9a-f]+", "", repr(leaf))
        for leaf in tree_leaves(results)
    )
    return Outcome(leaves, tuple(map(content, copies.storages())))


def failure(error: Exception) -> Outcome:
    """The outcome of a program that raised."""
    lines = str(error).strip().splitlines()
    return Outcome(error=type(error).__name__, sentence=lines[0] if lines else "")


def difference(expected: Outcome, found: Outcome) -> str | None:
    """The first difference of two outcomes that are no errors, in words; None where every bit is the same."""
    if len(expected.results) != len(found.results):
        return f"{len(found.results)} results, not {len(expected.results)}"
    for number, (theirs, ours) in enumerate(zip(expected.results, found.results, strict=True)):
        told = _difference_of(theirs, ours)
        if told is not None:
            return f"result {number}: {told}"
    for number, (theirs, ours) in enumerate(zip(expected.inputs, found.inputs, strict=True)):
        if theirs != ours:
            return f"the storage of input {number} holds other bytes after it"
    return None


def _difference_of(theirs: Any, ours: Any) -> str | None:
    if not isinstance(theirs, Image) or not isinstance(ours, Image):
        return None if theirs == ours else f"{ours!s:.80}, not {theirs!s:.80}"
    for fact in {**theirs.facts, **ours.facts}:
        expected, found = theirs.facts.get(fact), ours.facts.get(fact)
        if expected != found:
            return f"{fact} is {found}, not {expected}"
    for mine, cpus in zip(ours.content, theirs.content, strict=True):
        if mine != cpus:
            wrong = sum(a != b for a, b in zip(mine, cpus, strict=True)) if len(mine) == len(cpus) else "all"
            return f"{wrong} of {len(cpus)} bytes differ ({theirs.facts['dtype']})"
    return None
