"""Calls of blocks in a pass: whose storages they are given and return, by address."""

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple, Self

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from runtime.device.native import core
from runtime.recompute.layer import GRAIN_BYTES, Value
from runtime.recompute.moves import Region
from runtime.recompute.outside import Name
from runtime.recompute.policy import BlockPolicy
from runtime.recompute.tape import Node, Tape


@dataclass(eq=False)
class Call:
    """One call of a block in a pass: its tape, and the block's call before it in the same pass.

    By address of their storages: `own`, what it is given and no block before it was, `own_bytes` each; and what of its
    results it `returned`. Of these, `passed_on` are the next block's, or the loss's, where that keeps them. `awaits` is
    gone once nothing can come back to the call's results. `backward_pass` is autograd's number of the last backward
    pass that came to it, of `returns` so far: several where its graph `stays` (`retain_graph`). `log` is where it was
    measured, if it was: the walk may measure another pass while its graph stays.
    """

    block: int
    policy: BlockPolicy
    before: "Call | None"
    tape: Tape | None = None
    number: int = 0
    own: Mapping[int, core.WeakBytes] = field(default_factory=dict)
    own_bytes: tuple[int, ...] = ()
    kept: tuple[int, ...] = ()
    input_bytes: int = 0
    returned: Mapping[int, tuple[core.WeakBytes, Value]] = field(default_factory=dict)
    passed_on: frozenset[Value] = frozenset()
    forward_marks: tuple[int, int] = (0, 0)
    forward_waits: tuple[int, int] = (0, 0)
    backward_waits: tuple[int, int | None] | None = None
    backward_marks: tuple[int, int | None] = (0, None)
    awaits: "weakref.ref[Any] | None" = None
    backward_pass: int | None = None
    returns: int = 0
    stays: bool = False
    log: core.MemoryLog | None = None

    @property
    def finished(self) -> bool:
        """Whether nothing more comes of it: it has had its backward pass, or its results were dropped.

        A tape that holds nothing, as a bare linear layer's, does not know.
        """
        if self.tape is None or not self.tape.finished:
            return False
        return self.backward_waits is not None or self.awaits is None or self.awaits() is None

    @property
    def names(self) -> tuple[str, ...]:
        """Its operators."""
        return () if self.tape is None else tuple(node.name for node in self.tape.nodes)

    @property
    def given(self) -> Sequence[core.WeakBytes]:
        """What it is given, but what a block before it was given in the same pass: that one's moves are told of it."""
        return tuple(self.own.values())

    def look_at_kept(self, keeps: Callable[[Name], bool]) -> None:
        """Of what it is given, autograd keeps only some until its backward pass: `keeps` is asked, in a measured step.

        What the only result of the last block is, the loss is given. What a call before it was given in an earlier one
        of several forward passes that have one plan is that one's.
        """
        earlier = set[int]().union(*(one.own for one in calls_before(self)))
        self.kept = tuple(
            place for place, at in enumerate(self.own) if at not in earlier and keeps((self.block, -1, place))
        )
        self.input_bytes = sum(-(-self.own_bytes[place] // GRAIN_BYTES) * GRAIN_BYTES for place in self.kept)
        if self.before is not None:
            made, addresses = self.before.returned, tuple(self.own)
            self.before.passed_on = frozenset(
                made[addresses[place]][1] for place in self.kept if addresses[place] in made
            )
        if len(self.returned) == 1:  # of a block that is not the last one, the next one says more
            values = (value for _, value in self.returned.values())
            self.passed_on = frozenset(value for value in values if keeps((self.block, *value)))


def calls_before(call: Call) -> Iterator[Call]:
    """The calls before it in its pass, the latest first."""
    one = call.before
    while one is not None:
        yield one
        one = one.before


def most_made(calls: Sequence[Call], like: Call) -> tuple[int, ...]:
    """By node of a call what it made, in bytes, at most in a call of the same block and the same operators.

    0 where it cannot run again.
    """
    tapes = [one.tape.nodes for one in calls if one.tape is not None and one.block == like.block]
    alike = [nodes for nodes in tapes if tuple(node.name for node in nodes) == like.names]
    return tuple(max(map(_made_again, same)) for same in zip(*alike, strict=True))


def _made_again(node: Node) -> int:
    fixed = node.communicates or node.why_stored is not None
    return 0 if fixed else sum(size for size, _ in node.made)


def regions_of(call: Call) -> dict[int, Region]:
    """A call and those before it in its pass, by block."""
    return {one.block: one for one in (call, *calls_before(call))}


def returned_by(tape: Tape, outputs: Sequence[torch.Tensor]) -> dict[int, tuple[core.WeakBytes, Value]]:
    """What of a region's results the block returns, by the address of its storage."""
    found = {}
    for one in (_local(output) for output in outputs if output.requires_grad):
        node, address = tape.node_of(one), one.untyped_storage()._cdata
        for place, made in enumerate(() if node is None else tape.held(node)):
            if node is not None and made is not None and made.untyped_storage()._cdata == address:
                found[address] = core.WeakBytes(one), (node, place)
    return found


def _local(tensor: torch.Tensor) -> torch.Tensor:
    """What a DTensor has on this rank."""
    inner = getattr(tensor, "_local_tensor", tensor)
    return inner if isinstance(inner, torch.Tensor) else tensor


class Given(NamedTuple):
    """How large the arguments of a pass's first block are, in `bytes`, each as large as it looks.

    `extent` is each one's bytes times the sum of its sizes: of as many tokens in fewer, longer rows it is more, as of
    what attention makes of them.
    """

    bytes: int = 0
    extent: int = 0

    @classmethod
    def of(cls, args: Any, kwargs: Any) -> Self:
        """That of a call's arguments."""
        leaves = [_local(leaf) for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        return cls(sum(one.nbytes for one in leaves), sum(one.nbytes * sum(one.shape) for one in leaves))


def given_by(args: Any, kwargs: Any) -> list[torch.Tensor]:
    """What autograd may keep of a block's arguments: tensors that have gradients, one for each storage."""
    leaves = (
        _local(leaf) for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor) and leaf.requires_grad
    )
    return list({one.untyped_storage()._cdata: one for one in leaves}.values())


def wants_gradients(block: nn.Module, args: Any, kwargs: Any) -> bool:
    """Whether a parameter or a tensor that a call is given has gradients; what other objects hold is not looked at."""
    leaves = chain(block.parameters(), tree_leaves((args, kwargs)))
    return any(isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in leaves)
