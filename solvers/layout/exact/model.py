"""The relaxation of `exact-layout`: a linear model that no decision's lane time lies below (README, rows (1)-(17)).

Decisions are binaries, moments of the lanes are columns (`lanes.py`). Each row states what every decision's lanes
obey; what a lane may do beyond (who evicts whom, which gather waits for which reduction) is left out, so the optimum is
a lower bound. Rows are named by the keys that certificates use.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from solvers.engines import LinearModel, ModelBuilder
from solvers.engines.model import FloatArray
from solvers.ir.layout import LayoutPlan, Policy
from solvers.layout.evaluate import Instance
from solvers.layout.exact.lanes import Lanes, Term, split
from solvers.layout.exact.queue import Queued, QueuedLanes

_BITS = 20
"""Bits of the numbers in which memory is stated, in units of a power of two bytes that divides all of them."""


@dataclass(frozen=True)
class Relaxation:
    """The model, and where a decision is read from its solution.

    `whole` are the columns that a certificate may split, by key: sums first, which are best to split. `short` stands
    in the rows of memory and buffers, and is 0: memory that a plan had to have beyond what there is. A byte counts
    `byte` in rows of memory. `lanes` (of a model of time) and `queued` (of one with rows (18)-(20)) know the columns of
    moments.
    """

    model: LinearModel
    persistent: list[int]
    buffers: int
    again: list[int]
    swapped: list[int]
    whole: dict[str, int]
    short: int
    byte: float
    lanes: Lanes | None = None
    queued: Queued | None = None

    def plan(self, x: FloatArray) -> LayoutPlan:
        """The decision that a solution states; its memory rows are the problem's, so it fits."""
        policies: list[Policy] = [
            "checkpoint" if x[again] > 0.5 else "swap" if x[swapped] > 0.5 else "keep"
            for again, swapped in zip(self.again, self.swapped, strict=True)
        ]
        persistent = tuple(chunk for chunk, column in enumerate(self.persistent) if x[column] > 0.5)
        return LayoutPlan(persistent=persistent, buffers=round(x[self.buffers]), policies=tuple(policies))

    def start(self, plan: LayoutPlan) -> FloatArray:
        """A decision as a solution to begin with: its moments are left to the engine."""
        x = np.full(self.model.columns, np.nan)
        x[self.persistent] = [chunk in set(plan.persistent) for chunk in range(len(self.persistent))]
        x[self.buffers] = min(plan.buffers, len(self.persistent) - len(plan.persistent))
        x[self.again] = [policy == "checkpoint" for policy in plan.policies]
        x[self.swapped] = [policy == "swap" for policy in plan.policies]
        return x


def relaxation(
    given: Instance,
    known: LayoutPlan | None = None,
    most_us: float = math.inf,
    byte: float | None = None,
    queue_us: int | None = None,
) -> Relaxation:
    """The linear model of lane time; its solutions end at `most_us`, the time of a known decision, or sooner.

    A byte counts `byte` in rows of memory, a power of two (None: one that suits the engines). `queue_us`: with rows
    (18)-(20), which hold for decisions that end by then.
    """
    unit = 2.0 ** min(0, _BITS - given.problem.device_bytes.bit_length()) if byte is None else byte
    return _Builder(given, unit).timed(known, most_us, queue_us)


def memory_model(given: Instance) -> Relaxation:
    """The same decisions, minimising device bytes for the host memory there is, in integers; times are left out."""
    return _Builder(given, 1.0).sized()


def host_model(given: Instance) -> Relaxation:
    """The same decisions, minimising host bytes for the device memory there is, in integers; times are left out."""
    return _Builder(given, 1.0).hosted()


class _Builder:
    """The decision and its memory: one family of rows a method, numbered as in the README."""

    def __init__(self, given: Instance, byte: float) -> None:
        self.byte = byte
        self.given, self.problem = given, given.problem
        self.blocks, self.chunks = self.problem.blocks, self.problem.chunks
        self.count = len(self.blocks)
        self.builder = ModelBuilder("layout-relaxation")
        may = np.array([block.choice for block in self.blocks], dtype=np.float64)
        self.persistent = self.builder.binaries(len(self.chunks), name="persistent").tolist()
        self.buffers = self.builder.column(0, len(self.chunks), integer=True, name="buffers")
        self.again = self.builder.columns(self.count, 0, may, integer=True, name="checkpoint").tolist()
        self.swapped = self.builder.columns(self.count, 0, may, integer=True, name="swap").tolist()
        self.short = self.builder.column(0, 0, integer=True, name="short")
        self.whole: dict[str, int] = {}

    def timed(self, known: LayoutPlan | None, most_us: float, queue_us: int | None) -> Relaxation:
        """All rows; minimise the end of everything."""
        self._choices()
        self._fits_host()
        self._sums(known)
        self._fits_device()
        columns = (self.persistent, self.buffers, self.again, self.swapped)
        if queue_us is None:
            plain = Lanes(self.given, self.builder, *columns)
            plain.add(most_us)
            return self._relaxation(plain)
        lanes = QueuedLanes(self.given, self.builder, *columns)
        lanes.add(most_us)
        return self._relaxation(lanes, lanes.add_queue(queue_us))

    def sized(self) -> Relaxation:
        """Memory rows; minimise the device's."""
        self._choices()
        self._fits_host()
        columns, values = split(self._device())
        self.builder.add_cost(columns, values)
        self.builder.add_offset(self.problem.fixed_bytes * self.byte)
        return self._relaxation()

    def hosted(self) -> Relaxation:
        """Memory rows; minimise the host's."""
        self._choices()
        self._fits_device()
        self.builder.add_cost(*split(self._host()))
        self.builder.add_offset(sum(chunk.host_bytes for chunk in self.chunks) * self.byte)
        return self._relaxation()

    def _relaxation(self, lanes: Lanes | None = None, queued: Queued | None = None) -> Relaxation:
        whole = self.whole | {"buffers": self.buffers}
        for name, columns in (("persistent", self.persistent), ("checkpoint", self.again), ("swap", self.swapped)):
            whole |= {f"{name}/{number}": column for number, column in enumerate(columns)}
        if queued is not None:
            whole |= queued.whole()
        return Relaxation(
            self.builder.build(),
            self.persistent,
            self.buffers,
            self.again,
            self.swapped,
            whole,
            self.short,
            self.byte,
            lanes,
            queued,
        )

    def _at_least(self, terms: Iterable[Term], least: float, name: str) -> None:
        self.builder.row(*split(terms), lower=least, name=name)

    def _choices(self) -> None:
        """(1) One policy a block. (2) Least buffers, and no more than there are chunks for."""
        for k, (again, swapped) in enumerate(zip(self.again, self.swapped, strict=True)):
            self.builder.row([again, swapped], upper=1, name=f"policy/{k}")
        for k, needed in self._bound_sets():
            terms = [(self.buffers, 1.0), (self.short, 1.0), *((self.persistent[chunk], 1.0) for chunk in needed)]
            self._at_least(terms, len(needed), f"room/{k}")
        every = [(self.buffers, 1.0), (self.short, -1.0), *((column, 1.0) for column in self.persistent)]
        self.builder.row(*split(every), upper=len(self.chunks), name="chunks")

    def _host(self) -> list[Term]:
        """What host memory takes besides the states of all chunks: swapped blocks, less what persists."""
        swapped = [(self.swapped[k], block.activation_bytes * self.byte) for k, block in enumerate(self.blocks)]
        return swapped + [(self.persistent[c], -chunk.host_bytes * self.byte) for c, chunk in enumerate(self.chunks)]

    def _fits_host(self) -> None:
        """(3) Host memory."""
        room = self.problem.host_bytes - sum(chunk.host_bytes for chunk in self.chunks)
        self.builder.row(*split([*self._host(), (self.short, -1.0)]), upper=room * self.byte, name="host")

    def _fits_device(self) -> None:
        """(4) Device memory."""
        room = self.problem.device_bytes - self.problem.fixed_bytes
        self.builder.row(*split([*self._device(), (self.short, -1.0)]), upper=room * self.byte, name="memory")

    def _sums(self, known: LayoutPlan | None) -> None:
        """How many blocks are swapped and checkpointed, and how many chunks persist: redundant, but good to branch on.

        A transformer's blocks are alike, and so are its chunks. An engine is told of one sum only, as more made its
        searches longer: of checkpointed blocks where the known decision has some.
        """
        told = "checkpoints" if known is not None and "checkpoint" in known.policies else "persistents"
        for name, columns in (("checkpoints", self.again), ("swaps", self.swapped), ("persistents", self.persistent)):
            total = self.builder.column(0, len(columns), integer=name == told, name=name)
            self.builder.row(*split([(total, 1.0), *((column, -1.0) for column in columns)]), 0, 0, name=name)
            self.whole[name] = total

    def _bound_sets(self) -> list[tuple[int, list[int]]]:
        """Chunks in buffers together, by the block of the backward pass; what a neighbour includes is left out."""
        largest: list[tuple[int, list[int]]] = []
        for k, block in enumerate(self.blocks):
            needed = sorted({*block.chunks, *self.given.pending(k)})
            if largest and set(largest[-1][1]) <= set(needed):
                largest.pop()
            if not largest or not set(needed) <= set(largest[-1][1]):
                largest.append((k, needed))
        return largest

    def _device(self) -> list[Term]:
        """(4) What device memory takes besides `fixed_bytes`: chunks, buffers, and the most of any pass.

        `before` counts what earlier blocks hold at a pass; a swapped block's bytes leave it after g more blocks.
        """
        problem, whole = self.problem, self.byte == 1.0
        saved = sum(max(block.activation_bytes, block.input_bytes) for block in self.blocks)
        most = saved + max(max(b.forward_transient_bytes, b.backward_transient_bytes) for b in self.blocks)
        peak = self.builder.column(0, most * self.byte, integer=whole, name="peak")
        before = self.builder.columns(self.count, 0, most * self.byte, integer=whole, name="before").tolist()
        for k, block in enumerate(self.blocks):
            held, less = block.activation_bytes * self.byte, (block.activation_bytes - block.input_bytes) * self.byte
            forward = [(peak, 1.0), (before[k], -1.0), (self.again[k], less)]
            self._at_least(forward, held + block.forward_transient_bytes * self.byte, f"peak/{k}/0")
            self._at_least(
                [(peak, 1.0), (before[k], -1.0)], held + block.backward_transient_bytes * self.byte, f"peak/{k}/1"
            )
            if k + 1 == self.count:
                break
            terms = [(before[k + 1], 1.0), (before[k], -1.0), (self.again[k], less)]
            gone = k - problem.interval
            if gone >= 0:
                terms.append((self.swapped[gone], self.blocks[gone].activation_bytes * self.byte))
            self.builder.row(*split(terms), lower=held, upper=held, name=f"held/{k + 1}")
        self.builder.row([before[0]], lower=0, upper=0, name="held/0")
        each = [
            (self.persistent[c], (problem.chunk_bytes + chunk.persistent_bytes) * self.byte)
            for c, chunk in enumerate(self.chunks)
        ]
        return [*each, (self.buffers, problem.chunk_bytes * self.byte), (peak, 1.0)]
