"""Each gap between two uses of a tensor by itself, as what may leave in it: planners of swaps know one for a tensor."""

from collections.abc import Collection
from itertools import accumulate, pairwise

from msgspec.structs import replace

from solvers.ir.fields import TensorId
from solvers.ir.graph import OpGraph, Tensor

_MARK = "@"
"""Between a tensor and the op behind which its gap begins, in a stand-in's id."""


def gaps_apart(graph: OpGraph, budget_bytes: int, living: Collection[TensorId] = ()) -> OpGraph:
    """The same step with a stand-in for each gap, which is used at its two ends: `make_swap_problem(…, gaps=True)`.

    A tensor may wait more than once, and in any phase: a state between two backward passes of one step, a parameter
    between two forward passes. What is `living` at the step's end waits from its last use to the last op, too. Gaps in
    which all ops keep the budget are left out, and those of tensors that no executor could tell where they begin.
    """
    above = [0, *accumulate(held > budget_bytes for held in graph.memory_bytes)]
    last = len(graph.ops) - 1
    stand_ins = [
        replace(tensor, id=f"{tensor.id}{_MARK}{begin}", uses=(begin, end))
        for tensor in graph.tensors
        for begin, end in pairwise((*_touched(tensor), *((last,) if tensor.id in living else ())))
        if begin + 1 < end and above[end] > above[begin + 1] and _can_be_told(graph, tensor, begin)
    ]
    return replace(graph, tensors=(*graph.tensors, *stand_ins))


def is_gap(name: TensorId) -> bool:
    """Whether a tensor of a graph with its gaps apart is a stand-in."""
    return isinstance(name, str) and _MARK in name


def owner_of(name: TensorId) -> int:
    """The number of the tensor whose gap this is, or of the tensor itself."""
    return int(str(name).partition(_MARK)[0])


def _touched(tensor: Tensor) -> list[int]:
    return sorted({*tensor.uses, *(() if tensor.born is None else (tensor.born,))})


def _can_be_told(graph: OpGraph, tensor: Tensor, begin: int) -> bool:
    """Not where only the op that made it knows it, does not return it, and nobody says where it is (`inner`)."""
    op = graph.ops[begin]
    known = tensor.id in op.inputs or tensor.id in op.outputs or not (op.inputs or op.outputs)
    return begin != tensor.born or tensor.inner is not None or known
