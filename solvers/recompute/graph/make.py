"""From a graph of operators and tensors to a `recompute-graph` problem (README, "From a graph")."""

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from solvers.ir.fields import TensorId
from solvers.ir.graph import OpGraph
from solvers.ir.hardware import Hardware
from solvers.ir.recompute import RecomputeGraphProblem, RecomputeOp
from solvers.recompute.graph.replay import instance, replay

STATIC = ("parameter", "gradient", "optimizer")
"""Kinds of tensors that no decision of this room moves."""
Version = tuple[TensorId, int]
"""A tensor as that op made or last wrote it."""


def graph_problem(graph: OpGraph, budget_bytes: int, static_bytes: int | None = None) -> RecomputeGraphProblem:
    """The graph's ops in order as problem ops, each with one output: all that the op makes or writes, together.

    Parameters, gradients, optimizer states and what was there before the step are static. What is approximated:

    - an op of which the backward pass reads one part (a dropout's mask) while another part (its result) is gone by then
      becomes two problem ops, which share its time by bytes: recomputing one of them alone costs its share only, and
      what the op makes beside it for a moment is not counted;
    - an op that writes a tensor in place makes a new version of it beside the old one, so that this op counts the
      tensor twice; it is fused with the op before it where nothing else reads the old version and nothing it reads is
      newer;
    - gradients of parameters count from the start of the step; memory that an op takes and gives back within itself is
      not told apart by op;
    - recomputing an op is taken to repeat it exactly: random numbers and running statistics are the executor's affair;
      an op that must not run twice says so (`replay`), and so does a joined one of which a part must not.

    `static_bytes` None: static tensors, or more where the graph measured a higher peak than its tensors explain, so
    that keeping everything never peaks below what the graph measured.
    """
    reader = _Reader(graph)
    ops = reader.ops()
    listed = sum(tensor.bytes for tensor in graph.tensors if reader.is_static(tensor.id)) if static_bytes is None else 0
    problem = RecomputeGraphProblem(
        name=graph.name,
        budget_bytes=budget_bytes,
        static_bytes=listed if static_bytes is None else static_bytes,
        ops=ops,
        replays_from=0 if graph.replays_from is msgspec.UNSET else reader.first_piece(graph.replays_from),
    )
    if static_bytes is not None:
        return problem
    unexplained = max(graph.memory_bytes) - replay(instance(problem), [()] * len(ops)).peak_bytes
    return msgspec.structs.replace(problem, static_bytes=listed + max(0, unexplained))


def make_graph_problem(graph: OpGraph, hardware: Hardware, budget_bytes: int | None = None) -> RecomputeGraphProblem:
    """The problem of a step on the first device of a machine; its memory is the budget unless one is given."""
    return graph_problem(graph, hardware.device().memory_bytes if budget_bytes is None else budget_bytes)


@dataclass(frozen=True)
class Piece:
    """What an op of the problem is of: the graph's ops in it, and the tensors that its output is."""

    ops: tuple[int, ...]
    tensors: frozenset[TensorId]


def pieces_of(graph: OpGraph) -> tuple[Piece, ...]:
    """What each op of `graph_problem` is of."""
    reader = _Reader(graph)
    reader.ops()
    return tuple(Piece(tuple(step.ops), frozenset(name for name, _ in part)) for step, part in reader.pieces)


@dataclass
class _Step:
    """One problem op in the making: the graph's ops in it, and the versions that it reads and makes."""

    ops: list[int]
    reads: set[Version]
    makes: set[Version]


class _Reader:
    """Follows the versions of each tensor through the step."""

    def __init__(self, graph: OpGraph) -> None:
        self.graph = graph
        self.bytes = {tensor.id: tensor.bytes for tensor in graph.tensors}
        self.static = {tensor.id for tensor in graph.tensors if tensor.born is None or tensor.kind in STATIC}
        self.readers: dict[Version, list[int]] = {}
        self.pieces: list[tuple[_Step, set[Version]]] = []
        self.born: dict[int, list[TensorId]] = {}
        for tensor in graph.tensors:
            if tensor.born is not None:
                self.born.setdefault(tensor.born, []).append(tensor.id)

    def is_static(self, name: TensorId) -> bool:
        """Whether the tensor stays where it is for the whole step."""
        return name in self.static

    def ops(self) -> tuple[RecomputeOp, ...]:
        """The problem's ops."""
        steps = self._fused(self._steps())
        self.pieces = pieces = [(step, part) for step in steps for part in self._parts(step)]
        place = {version: number for number, (_, part) in enumerate(pieces) for version in part}
        return tuple(self._op(step, part, place) for step, part in pieces)

    def _op(self, step: _Step, part: set[Version], place: dict[Version, int]) -> RecomputeOp:
        members, parts = [self.graph.ops[op] for op in step.ops], self._parts(step)
        return RecomputeOp(
            name=" + ".join(op.name for op in members) + (" (saved)" if part != parts[0] else ""),
            time_us=self._time_us(step, part),
            output_bytes=self._bytes(part),
            inputs=tuple(sorted({place[version] for version in step.reads})),
            comm=members[0].kind == "comm",
            replay=all(op.replay is not False for op in members),
        )

    def first_piece(self, op: int) -> int:
        """The problem op that is the first of those behind this op of the graph, itself included."""
        return next(number for number, (step, _) in enumerate(self.pieces) if step.ops[0] >= op)

    def _bytes(self, versions: Iterable[Version]) -> int:
        return sum(self.bytes[name] for name in {name for name, _ in versions})

    def _parts(self, step: _Step) -> list[set[Version]]:
        """What a forward op makes for its own pass only and what for later, where it makes both; else all together."""
        if self.graph.ops[step.ops[0]].phase != "forward" or self.graph.ops[step.ops[0]].kind == "comm":
            return [step.makes]
        later = {version for version in step.makes if self.read_later(version)}
        passing = step.makes - later
        return [passing, later] if self._bytes(passing) and self._bytes(later) else [step.makes]

    def read_later(self, version: Version) -> bool:
        """Whether an op of another pass reads the version."""
        return any(self.graph.ops[reader].phase != "forward" for reader in self.readers.get(version, ()))

    def _time_us(self, step: _Step, part: set[Version]) -> int:
        """The part's share of the step's time by bytes; the shares add up."""
        total, whole = sum(self.graph.ops[op].time_us for op in step.ops), self._bytes(step.makes)
        parts = self._parts(step)
        if len(parts) == 1:
            return total
        first = total * self._bytes(parts[0]) // whole
        return first if part == parts[0] else total - first

    def _steps(self) -> list[_Step]:
        """Each op with the versions that it reads (of what it writes in place too) and makes."""
        writer: dict[TensorId, int] = {}
        steps = []
        for number, op in enumerate(self.graph.ops):
            made = self._moving((*self.born.get(number, ()), *op.outputs))
            touched = self._moving(op.inputs) | made
            reads = {(name, writer[name]) for name in touched if name in writer}
            steps.append(_Step([number], reads, {(name, number) for name in made}))
            writer |= dict.fromkeys(made, number)
        return steps

    def _moving(self, names: Iterable[TensorId]) -> set[TensorId]:
        return {name for name in names if name not in self.static}

    def _fused(self, steps: list[_Step]) -> list[_Step]:
        """Writes in place joined to the op that made what they write, where that changes no other op."""
        for number, step in enumerate(steps):
            for version in step.reads:
                self.readers.setdefault(version, []).append(number)
        home = list(range(len(steps)))
        for number, step in enumerate(steps):
            target = self._target(steps, home, number, step)
            if target is not None:
                home[number] = target
                old = {version for version in step.reads if version in steps[target].makes}
                steps[target].ops.append(number)
                steps[target].reads |= step.reads - old
                steps[target].makes = (steps[target].makes - old) | step.makes
        return [step for number, step in enumerate(steps) if home[number] == number]

    def _target(self, steps: list[_Step], home: list[int], number: int, step: _Step) -> int | None:
        """The step that an op joins: it made the only thing that the op writes, for this op alone; None for none."""
        names = {name for name, _ in step.makes}
        old = {version for version in step.reads if version[0] in names}
        if len(names) != 1 or len(old) != 1 or self.graph.ops[number].kind == "comm":
            return None
        (version,) = old
        target = home[version[1]]
        newest = max((home[writer] for _, writer in step.reads), default=target)
        alone = self.readers[version] == [number] and self.graph.ops[steps[target].ops[0]].kind != "comm"
        same_phase = self.graph.ops[steps[target].ops[0]].phase == self.graph.ops[number].phase
        return target if alone and newest <= target and same_phase else None
