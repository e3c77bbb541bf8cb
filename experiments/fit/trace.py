"""All that a program asks of the allocator, from nothing to the end of a steady step, and what each block holds."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from solvers.ir.fields import TensorId
from solvers.ir.graph import OpGraph, Tensor
from solvers.timeline.segments import Event, Requests, held_before

Kind = Literal["parameters", "gradients", "optimizer states", "activations", "temporaries", "other"]
KINDS: tuple[Kind, ...] = ("parameters", "gradients", "optimizer states", "activations", "temporaries", "other")
SPLIT: tuple[tuple[Kind, int], ...] = (("parameters", 2), ("gradients", 2), ("optimizer states", 12))
"""The sixteen bytes of a parameter in mixed precision (Lynx §2.1), which a computed graph states as one tensor."""


@dataclass(frozen=True)
class FirstStep:
    """A step before the profiled one: its events begin with number `begin`, `ops` and `begun` as in `Trace`.

    Its first `alike` operators are those of the profiled step.
    """

    begin: int
    ops: tuple[int | None, ...]
    begun: tuple[int, ...]
    alike: int


@dataclass(frozen=True)
class Trace:
    """Events from an empty device to the end of a step; the step's begin with event number `step_begin`.

    `graph` is the step; `ops[i]` is the operator during which event `step_begin` + i happens, None between two, and
    `begun[i]` how many operators have begun by then (empty: nobody counted). `block_of` says which block a tensor lies
    in that the step makes; `kinds` what a block holds, where that is known. `first_steps` are those before, in order.
    """

    graph: OpGraph
    events: tuple[Event, ...]
    step_begin: int
    ops: tuple[int | None, ...]
    block_of: Mapping[TensorId, int]
    kinds: Mapping[int, Kind]
    begun: tuple[int, ...] = ()
    first_steps: tuple[FirstStep, ...] = ()

    @property
    def ran(self) -> bool:
        """Whether a program ran; a computed step has no first steps of another kind."""
        return bool(self.first_steps)

    @property
    def step(self) -> Requests:
        """The step alone, on what is in use when it begins."""
        begin = self.step_begin
        held = tuple(held_before(self.events, begin))
        return Requests(held, self.events[begin:], self.ops, self.block_of, begun=self.begun)


def kind_of(tensor: Tensor) -> Kind:
    """What a tensor of a profiled step is, in the words of a memory table.

    An activation is what the backward pass waits for; all else that the step makes and drops is temporary.
    """
    if tensor.kind == "parameter":
        return "parameters"
    if tensor.kind == "gradient":
        return "gradients"
    if tensor.kind == "optimizer":
        return "optimizer states"
    if tensor.born is None:
        return "other"
    return "activations" if tensor.saved else "temporaries"


def graph_trace(graph: OpGraph, also_held_bytes: int = 0) -> Trace:
    """The requests of a computed graph: what is there before, then each op's tensors until their last uses.

    `also_held_bytes` of activations are there all the time: those of other microbatches in flight.
    """
    events, kinds, block_of = list[Event](), dict[int, Kind](), dict[TensorId, int]()

    def hold(size: int, kind: Kind) -> int:
        number = len(kinds)
        kinds[number] = kind
        events.append(Event(number, size))
        return number

    born: dict[int, list[Tensor]] = {}
    dies: dict[int, list[Tensor]] = {}
    last_op = len(graph.ops) - 1
    for tensor in graph.tensors:
        if tensor.bytes == 0:
            continue
        if tensor.born is None and tensor.kind == "parameter":
            for kind, share in SPLIT:
                if tensor.bytes * share // 16:
                    hold(tensor.bytes * share // 16, kind)
        elif tensor.born is None:
            block_of[tensor.id] = hold(tensor.bytes, "other")
        else:
            born.setdefault(tensor.born, []).append(tensor)
        if tensor.uses or tensor.born is not None:
            dies.setdefault(max([*tensor.uses, tensor.born or 0]), []).append(tensor)
    if also_held_bytes:
        hold(also_held_bytes, "activations")
    begin, ops = len(events), list[int | None]()
    for op in range(last_op + 1):
        for tensor in born.get(op, ()):
            block_of[tensor.id] = hold(tensor.bytes, kind_of(tensor))
        for tensor in dies.get(op, ()):
            if tensor.id in block_of:
                events.append(Event(block_of[tensor.id], 0))
        ops += [op] * (len(events) - begin - len(ops))
    return Trace(graph, tuple(events), begin, tuple(ops), block_of, kinds)


def bytes_by_kind(held: Iterable[Event], kinds: Mapping[int, Kind], rounded: int = 512) -> dict[Kind, int]:
    """Bytes of blocks by what they hold, each rounded up as allocators round; blocks of which nothing is known: other.

    Blocks that the step takes and never shows as a tensor are workspaces: give them as temporaries in `kinds`.
    """
    found = dict.fromkeys(KINDS, 0)
    for event in held:
        found[kinds.get(event.block, "other")] += -(-event.bytes // rounded) * rounded
    return found
