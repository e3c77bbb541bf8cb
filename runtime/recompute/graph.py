"""The blocks' tapes as a measured graph (`bayplan-graph/1`): what `bayplan make` and every solver read.

Forward operators are the tape's units, in execution order, one result each: what an operator makes for autograd and
what it makes for later operators only are two operators that share its time by bytes. What the runtime cannot run again
has `replay` false: units that the tape stores in any case, collectives (whose time holds the wait), what a block is
given (the next block's tape holds it), and the backward pass. Nothing runs again before the backward pass
(`replays_from`): until then the program itself holds what it reads.

Of a block's backward pass the tape knows what it reads and how long it stalls in each wait, so it stands as parts
between its waits. All of them hold what autograd saved. What else the device held, in the step that stored nothing,
stands as a workspace in each block's backward pass, in the loss, and at the last block's beginning, so that the graph
of a step that stores nothing peaks where the measured one did, at as many bytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from typing import Literal

from msgspec import UNSET

from runtime.recompute.footprint import Peaks
from runtime.recompute.layer import Layer
from runtime.recompute.outside import Uses, behind_counts
from solvers.ir.graph import Op, OpGraph, Tensor, TensorKind

STATES = "states"
"""The tensor that stands for all memory that no decision about the blocks changes."""


@dataclass(frozen=True)
class Place:
    """What an operator of the graph is: a unit of a block, or where its backward pass stands.

    `begin` is the first part of a block's backward pass, `held` what follows the `index`-th time that the host waits in
    it (from 1), `wait` its collective of that index, `part` what follows that, and `end` the last operator, which hands
    the gradient on (index −1: it follows none). `given` is what the first block is given, `output` a block's output,
    `loss` what stands between the passes; `other`: memory beside; `behind` the last block, until the program has begun
    `index` operators and what these had to wait for.
    """

    kind: Literal["unit", "begin", "held", "wait", "part", "end", "given", "output", "behind", "loss", "other"]
    block: int = -1
    index: int = 0


OTHER, GIVEN, LOSS = Place("other"), Place("given"), Place("loss")


@dataclass(frozen=True)
class Step:
    """A measured step: its graph, and the place of each of its operators.

    `beyond_bytes` are in use in later steps and were not then. `uses`: what the program does with blocks' tensors
    outside of them.
    """

    graph: OpGraph
    places: tuple[Place, ...]
    beyond_bytes: int = 0
    uses: Uses = field(default_factory=Uses)


@dataclass
class _Draft:
    """An operator while the graph is written; times are rounded together at the end."""

    name: str
    phase: Literal["forward", "backward"]
    time_us: float
    place: Place
    inputs: list[str]
    output: str
    communicates: bool = False
    replay: bool = False
    layer: int | None = None


def runs_once(layer: Layer, index: int) -> bool:
    """Whether a plan of the whole step leaves it where it is: it cannot run again, or it is a collective."""
    return layer.units[index].fixed is not None or layer.units[index].communicates


def again(layer: Layer) -> list[int]:
    """The units that run again where nothing is stored; those of no bytes stay."""
    return sorted(index for index in _wanted(layer) if not _stays(layer, index))


def lasting(layer: Layer) -> set[int]:
    """The units that stay where nothing is stored: the backward pass depends on them, and they do not run again."""
    return {index for index in _wanted(layer) if _stays(layer, index)}


def _stays(layer: Layer, index: int) -> bool:
    return runs_once(layer, index) or layer.units[index].bytes == 0


def _wanted(layer: Layer) -> set[int]:
    """What the backward pass reads, and what that is computed from."""
    left = [index for index, unit in enumerate(layer.units) if unit.saved]
    seen: set[int] = set()
    while left:
        index = left.pop()
        if index not in seen:
            seen.add(index)
            left += () if _stays(layer, index) else layer.units[index].inputs
    return seen


@dataclass(frozen=True)
class _Room:
    """What is in use beside the graph's tensors, in bytes, by interval; `static` in all of them."""

    static: int
    forward: int
    loss: int
    backward: tuple[int, ...]


def _room(layers: Sequence[Layer], peaks: Peaks, beyond_bytes: int) -> _Room:
    """What the measured peaks of a step that stored nothing hold beside the blocks' own tensors."""
    count = len(layers)
    given = [*accumulate(layer.input_bytes for layer in layers)]
    stays = [0, *accumulate(sum(layer.units[one].bytes for one in lasting(layer)) for layer in layers)]
    saved = [sum(unit.bytes for unit in layer.units if unit.saved) for layer in layers]
    passed = [layer.input_bytes for layer in layers] + [layers[-1].input_bytes]
    known = [given[b] + stays[b] + saved[b] + max(passed[b], passed[b + 1]) for b in range(count)]
    most = max(given[b] + stays[b] + _forward_bytes(layer) for b, layer in enumerate(layers))
    ended = given[-1] + passed[-1] + stays[-1]
    left = [peaks.backward[b] - known[b] if b in peaks.backward else None for b in range(count)]
    measured = [one for one in (*left, peaks.forward - most, peaks.loss - ended) if one is not None]
    static = max(0, min(measured))
    at_last = given[-1] + stays[-2]
    room = _Room(
        static=static + beyond_bytes,
        forward=max(0, peaks.forward - at_last - static),
        loss=max(0, peaks.loss - ended - static),
        backward=tuple(max(0, (one or 0) - static) for one in left),
    )
    if all(layer.passes == 1 for layer in layers):
        return room
    # While one of several passes is at a block, the others hold what all have at the loss: beside that there must be
    # room for what any block takes.
    return replace(room, loss=max(room.forward, room.loss, *room.backward))


def _forward_bytes(layer: Layer) -> int:
    """The most bytes of the block's own units in its forward pass, where nothing of them is stored."""
    last = list(range(len(layer.units)))
    for index, unit in enumerate(layer.units):
        for one in unit.inputs:
            last[one] = index
    stay, level, most = lasting(layer), 0, 0
    for index, unit in enumerate(layer.units):
        level += unit.bytes
        most = max(most, level)
        level -= sum(layer.units[one].bytes for one in {*unit.inputs, index} if last[one] == index and one not in stay)
    return max(most, level + layer.input_bytes)


@dataclass
class _Writer:
    """Writes the operators of all blocks, forwards and backwards, and their tensors."""

    layers: Sequence[Layer]
    room: _Room
    drafts: list[_Draft] = field(default_factory=list)
    bytes: dict[str, int] = field(default_factory=dict)
    kinds: dict[str, TensorKind] = field(default_factory=dict)
    saved: set[str] = field(default_factory=set)

    def tensor(self, name: str, size: int, kind: TensorKind = "activation", *, saved: bool = False) -> str:
        """A tensor, made known."""
        self.bytes[name], self.kinds[name] = size, kind
        if saved:
            self.saved.add(name)
        return name

    def add(self, draft: _Draft, size: int, kind: TensorKind = "activation", *, saved: bool = False) -> None:
        """An operator and what it makes."""
        self.tensor(draft.output, size, kind, saved=saved)
        self.drafts.append(draft)

    def forward(self, number: int) -> None:
        """A block's operators, and its output, which is the next one's."""
        layer = self.layers[number]
        whole: dict[tuple[int, ...], int] = {}
        for unit in layer.units:
            whole[unit.nodes] = whole.get(unit.nodes, 0) + unit.bytes
        parts = {unit.nodes: 0.0 for unit in layer.units}
        for index, unit in enumerate(layer.units):
            share = unit.bytes / whole[unit.nodes] if whole[unit.nodes] else 1.0 - parts[unit.nodes]
            parts[unit.nodes] += share
            inputs = [f"{number}.{one}" for one in unit.inputs] or [f"hidden {number}"]
            draft = _Draft(
                unit.name, "forward", share * unit.time_us, Place("unit", number, index), inputs, f"{number}.{index}",
                communicates=unit.communicates, replay=not runs_once(layer, index), layer=number,
            )  # fmt: skip
            self.add(draft, unit.bytes, saved=unit.saved)
        size = self.layers[min(number + 1, len(self.layers) - 1)].input_bytes
        made = [self.drafts[-1].output]
        self.add(
            _Draft("output", "forward", 0.0, Place("output", number), made, f"hidden {number + 1}", layer=number), size
        )

    def beside(self, name: str, reads: list[str], size: int, place: Place) -> None:
        """What the device holds beside the blocks' tensors for a moment."""
        output = f"{name} {place.index}"
        self.add(_Draft(name, "forward", 0.0, place, reads, output), size, "other")

    def backward(self, number: int) -> None:
        """A block's backward pass, between its waits."""
        layer, hidden, beside = self.layers[number], f"hidden {number}", f"{number}.beside"
        waits = layer.backward_waits_us
        parts = layer.backward_parts_us or [layer.backward_us / (len(waits) + 1)] * (len(waits) + 1)
        holds = [hidden, *(f"{number}.{index}" for index, unit in enumerate(layer.units) if unit.saved)]
        begin = _Draft(
            "backward, part 1", "backward", parts[0], Place("begin", number), [f"gradient {number + 1}", *holds],
            beside, layer=number,
        )  # fmt: skip
        self.add(begin, self.room.backward[number], "other")
        for index in range(len(layer.launches.held) if layer.launches is not None else 0):
            name, place = f"held {index + 1}", Place("held", number, index + 1)
            self.add(_Draft(name, "backward", 0.0, place, [beside, *holds], f"{number}.{name}", layer=number), 0)
        for index, wait in enumerate(waits):
            name, sent, place = f"collective {index + 1}", f"{number}.sum {index}", Place("wait", number, index)
            self.add(_Draft(f"backward, {name}", "backward", wait, place, [beside], sent, True, layer=number), 0)
            holds.append(sent)
            if index + 1 < len(waits):
                done, name = f"{number}.part {index + 1}", f"backward, part {index + 2}"
                place = Place("part", number, index)
                self.add(_Draft(name, "backward", parts[index + 1], place, [sent], done, layer=number), 0)
        name, time_us = (f"backward, part {len(waits) + 1}", parts[-1]) if waits else ("backward, end", 0.0)
        place = Place("end", number, len(waits) - 1)
        end = _Draft(name, "backward", time_us, place, [beside, *holds], f"gradient {number}", layer=number)
        self.add(end, layer.input_bytes)


def step_of(
    layers: Sequence[Layer], peaks: Peaks, *, beyond_bytes: int, name: str, source: str, uses: Uses | None = None
) -> Step:
    """The graph of so many blocks, forwards and backwards, by the peaks of the step that stored nothing.

    `beyond_bytes` are in use in later steps and were not in the measured one, such as the optimizer's states. `uses` is
    as in `Step`.
    """
    writer = _Writer(layers, _room(layers, peaks, beyond_bytes))
    writer.tensor(STATES, writer.room.static, "parameter")
    writer.add(_Draft("input", "forward", 0.0, GIVEN, [], "hidden 0"), layers[0].input_bytes)
    for number in range(len(layers)):
        if number + 1 == len(layers):
            writer.beside("beside the forward pass", [f"hidden {number}"], writer.room.forward, OTHER)
        writer.forward(number)
    for count in behind_counts(uses or Uses(), layers):
        place = Place("behind", index=count)
        writer.beside("beside the loss", [f"hidden {len(layers)}"], writer.room.loss, place)
    loss = _Draft("loss", "forward", 0.0, LOSS, [f"hidden {len(layers)}"], f"gradient {len(layers)}")
    writer.add(loss, layers[-1].input_bytes)
    for number in reversed(range(len(layers))):
        writer.backward(number)
    return replace(_finished(writer, name, source), beyond_bytes=beyond_bytes, uses=uses or Uses())


def _finished(writer: _Writer, name: str, source: str) -> Step:
    drafts = writer.drafts
    ends = [round(end) for end in accumulate(draft.time_us for draft in drafts)]
    times = [after - before for before, after in pairwise([0, *ends])]
    born = {draft.output: index for index, draft in enumerate(drafts)}
    uses: dict[str, list[int]] = {}
    for index, draft in enumerate(drafts):
        for one in {*draft.inputs, draft.output}:
            uses.setdefault(one, []).append(index)
    tensors = tuple(
        Tensor(id=one, bytes=size, born=born.get(one), uses=tuple(uses.get(one, ())), saved=one in writer.saved,
               kind=writer.kinds[one])
        for one, size in writer.bytes.items()
    )  # fmt: skip
    ops = tuple(
        Op(name=draft.name, phase=draft.phase, time_us=time, inputs=tuple(draft.inputs), outputs=(draft.output,),
           kind="comm" if draft.communicates else "compute", replay=UNSET if draft.replay else False)
        for draft, time in zip(drafts, times, strict=True)
    )  # fmt: skip
    places = tuple(draft.place for draft in drafts)
    graph = OpGraph(
        name=name, ops=ops, tensors=tensors, memory_bytes=_memory(tensors, len(ops)), source=source,
        layer_of_op=tuple(draft.layer for draft in drafts),
        replays_from=next(index for index, place in enumerate(places) if place.kind == "begin"),
    )  # fmt: skip
    return Step(graph, places)


def _memory(tensors: Sequence[Tensor], count: int) -> tuple[int, ...]:
    """What is alive during each op: from where a tensor is born to its last use; what was there before, always."""
    changes = [0] * (count + 1)
    for tensor in tensors:
        first = 0 if tensor.born is None else tensor.born
        last = count - 1 if tensor.born is None or not tensor.uses else tensor.uses[-1]
        changes[first] += tensor.bytes
        changes[last + 1] -= tensor.bytes
    return tuple(accumulate(changes[:count]))
