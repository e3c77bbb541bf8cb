"""What a layout takes: lane time, device and host memory, least buffers (formats.md 8).

Every solver of this room measures its plans with it; the independent judge has its own.
"""

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

from solvers.ir.layout import LayoutPlan, LayoutProblem, Policy
from solvers.layout.buffers import Loads, loads_of


@dataclass(frozen=True)
class Instance:
    """A problem with what every evaluation needs computed once.

    Passes are numbered 0…2N − 1, forward first. By chunk: `first` and `last` block that uses it, and `asked`, the
    passes that ask for it. By block: `completes`, the trainable chunks whose gradients its backward completes. `loads`
    remembers what passes load, which policies do not change.
    """

    problem: LayoutProblem
    first: list[int]
    last: list[int]
    asked: list[list[int]]
    completes: list[list[int]]
    loads: dict[tuple[tuple[int, ...], int], Loads] = field(default_factory=dict, compare=False, repr=False)

    def pending(self, block: int) -> list[int]:
        """Chunks whose gradients are incomplete, or just complete, when the backward pass of a block ends."""
        pairs = enumerate(zip(self.problem.chunks, self.first, self.last, strict=True))
        return [number for number, (chunk, first, last) in pairs if chunk.trainable and first <= block <= last]


@dataclass(frozen=True)
class Step:
    """When the forward passes, the backward passes and everything of a step end."""

    forward_us: int
    backward_us: int
    end_us: int


def instance(problem: LayoutProblem) -> Instance:
    """The problem with its chunks' uses."""
    users: list[list[int]] = [[] for _ in problem.chunks]
    for number, block in enumerate(problem.blocks):
        for chunk in block.chunks:
            users[chunk].append(number)
    turn = 2 * len(problem.blocks) - 1
    completes: list[list[int]] = [[] for _ in problem.blocks]
    for chunk, blocks in enumerate(users):
        if problem.chunks[chunk].trainable:
            completes[blocks[0]].append(chunk)
    asked = [[*blocks, *(turn - block for block in reversed(blocks))] for blocks in users]
    return Instance(problem, [blocks[0] for blocks in users], [blocks[-1] for blocks in users], asked, completes)


def all_on_device(problem: LayoutProblem) -> LayoutPlan:
    """Everything persistent, nothing swapped or computed again: what a step takes with unlimited memory."""
    policies: list[Policy] = ["keep"] * len(problem.blocks)
    return LayoutPlan(persistent=tuple(range(len(problem.chunks))), buffers=0, policies=tuple(policies))


def least_buffers(given: Instance, persistent: Collection[int]) -> int:
    """The fewest buffers with which every pass has the chunks that it asks for, and those with incomplete gradients.

    Backward passes decide: they need what the forward of their block needs, and gradients besides.
    """
    always = set(persistent)
    bound = [0] * (len(given.problem.blocks) + 1)
    for chunk, (first, last) in enumerate(zip(given.first, given.last, strict=True)):
        if chunk in always:
            continue
        if given.problem.chunks[chunk].trainable:
            bound[first] += 1
            bound[last + 1] -= 1
        else:
            for block in given.asked[chunk][: len(given.asked[chunk]) // 2]:
                bound[block] += 1
                bound[block + 1] -= 1
    return max(accumulate(bound))


def device_bytes(given: Instance, plan: LayoutPlan) -> int:
    """The most bytes on the device at any moment of the step."""
    problem = given.problem
    persistent = sum(problem.chunk_bytes + problem.chunks[chunk].persistent_bytes for chunk in plan.persistent)
    return persistent + plan.buffers * problem.chunk_bytes + problem.fixed_bytes + activation_peak(given, plan.policies)


def activation_peak(given: Instance, policies: Sequence[Policy]) -> int:
    """The most bytes of activations and of what a running block needs besides, over all passes."""
    blocks, interval = given.problem.blocks, given.problem.interval
    before = peak = 0
    for number, (block, policy) in enumerate(zip(blocks, policies, strict=True)):
        gone = number - 1 - interval
        if gone >= 0 and policies[gone] == "swap":
            before -= blocks[gone].activation_bytes
        stays = block.input_bytes if policy == "checkpoint" else block.activation_bytes
        own = max(stays + block.forward_transient_bytes, block.activation_bytes + block.backward_transient_bytes)
        peak = max(peak, before + own)
        before += stays
    return peak


def host_bytes(given: Instance, plan: LayoutPlan) -> int:
    """What lies in host memory: chunks that are not persistent, with their states, and swapped activations."""
    always = set(plan.persistent)
    away = sum(chunk.host_bytes for number, chunk in enumerate(given.problem.chunks) if number not in always)
    pairs = zip(given.problem.blocks, plan.policies, strict=True)
    return away + sum(block.activation_bytes for block, policy in pairs if policy == "swap")


def evaluate(given: Instance, plan: LayoutPlan) -> Step:
    """When the step ends, on five lanes. The plan must have `least_buffers` at least; memory is not checked."""
    return _Walk(given, plan).run()


class Move(NamedTuple):
    """A chunk on the network: brought for a pass into the buffer of `gone` (None: one never used), or its gradients.

    `at` is the pass that asks, None for gradients. `gone_after` is the last pass that had asked for an evicted chunk,
    None for one that no pass asks for any more.
    """

    chunk: int
    at: int | None = None
    gone: int | None = None
    gone_after: int | None = None


def moves(given: Instance, plan: LayoutPlan) -> list[Move]:
    """All moves in the order in which the network serves them; loads run in their order of it (formats.md 8.6)."""
    walk = _Walk(given, plan, told=True)
    walk.run()
    return walk.moves


_REMEMBERED = 4096
"""Sets of persistent chunks with buffers whose loads are remembered before all are forgotten."""


def _loads(given: Instance, plan: LayoutPlan) -> Loads:
    """What each pass must load: policies do not matter."""
    key = plan.persistent, plan.buffers
    found = given.loads.get(key)
    if found is None:
        if len(given.loads) >= _REMEMBERED:
            given.loads.clear()
        found = loads_of(given.problem, given.asked, frozenset(plan.persistent), plan.buffers)
        given.loads[key] = found
    return found


class _Walk:
    """The passes in order; each lane is known by when it is free.

    Reductions wait in a queue until a gather that was issued later, or a load that needs their buffer, has them served:
    whatever is issued before a gather is known when the walk comes to it, since later passes end after it.
    """

    def __init__(self, given: Instance, plan: LayoutPlan, told: bool = False) -> None:
        self.told = told
        self.given, self.problem, self.policies = given, given.problem, plan.policies
        self.persistent = frozenset(plan.persistent)
        self.loads = _loads(given, plan)
        self.compute = self.into = self.out = self.net = self.cpu = 0
        self.ends: list[int] = []
        self.swapped_out: dict[int, int] = {}
        self.waiting: deque[tuple[int, int]] = deque()
        self.offloaded: dict[int, int] = {}
        self.reduced: dict[int, int] = {}
        self.moves: list[Move] = []

    def run(self) -> Step:
        """All passes, then what is left of reductions and updates."""
        count = len(self.problem.blocks)
        for block in range(count):
            self._forward(block)
        forward = self.compute
        for block in reversed(range(count)):
            self._backward(block)
        backward = self.compute
        while self.waiting:
            self._serve()
        self._update()
        return Step(forward, backward, max(self.compute, self.into, self.out, self.net, self.cpu))

    def _forward(self, number: int) -> None:
        block = self.problem.blocks[number]
        ready = self._load(number)
        gone = number - 1 - self.problem.interval
        if gone >= 0 and self.policies[gone] == "swap":
            ready = max(ready, self.swapped_out[gone])
        self.compute = ready + block.forward_us
        self.ends.append(self.compute)
        if self.policies[number] == "swap":
            self.swapped_out[number] = self.out = max(self.out, self.compute) + block.swap_out_us

    def _backward(self, number: int) -> None:
        block, policy = self.problem.blocks[number], self.policies[number]
        count, near = len(self.problem.blocks), number + self.problem.interval + 1
        ready = self._load(2 * count - 1 - number)
        if policy == "swap":
            room = self.ends[2 * count - 1 - near if near < count else count - 1]
            self.into = max(self.into, self.swapped_out[number], room) + block.swap_in_us
            ready = max(ready, self.into)
        again = block.forward_us if policy == "checkpoint" else 0
        self.compute = ready + again + block.backward_us
        self.ends.append(self.compute)
        for chunk in self.given.completes[number]:
            self.waiting.append((self.compute, chunk))

    def _load(self, at: int) -> int:
        """Load and gather what a pass lacks; when all of it is present, and the pass before has ended."""
        if not self.loads[at]:
            return self.compute
        present = 0
        for number, gone, gone_after in self.loads[at]:
            chunk = self.problem.chunks[number]
            issued = self.into = max(self.into, self._free(gone, gone_after)) + chunk.load_us
            while self.waiting and self.waiting[0][0] < issued:
                self._serve()
            if self.told:
                self.moves.append(Move(number, at, gone, gone_after))
            present = self.net = max(self.net, issued) + chunk.gather_us
        return max(self.compute, present)

    def _free(self, gone: int | None, gone_after: int | None) -> int:
        """When a buffer is free: never used, evicted after a pass, or emptied (of gradients: once they are away)."""
        if gone is None:
            return 0
        if gone_after is not None:
            return self.ends[gone_after]
        if not self.problem.chunks[gone].trainable:
            return self.ends[self.given.asked[gone][-1]]
        while gone not in self.offloaded:
            self._serve()
        return self.offloaded[gone]

    def _serve(self) -> None:
        """Reduce the gradients that wait longest; those of a chunk that does not stay leave the device."""
        issued, number = self.waiting.popleft()
        chunk = self.problem.chunks[number]
        if self.told:
            self.moves.append(Move(number))
        if number in self.persistent:
            self.reduced[number] = self.net = max(self.net, issued) + chunk.allreduce_us
        else:
            self.net = max(self.net, issued) + chunk.reduce_us
            self.offloaded[number] = self.out = max(self.out, self.net) + chunk.offload_us

    def _update(self) -> None:
        """Each chunk after its own gradients, or after all of them where no update may overlap."""
        chunks = self.problem.chunks
        every = 0 if self.problem.overlap_update else max(self.compute, self.net, self.out)
        for number, offloaded in self.offloaded.items():
            self.cpu = max(self.cpu, offloaded, every) + chunks[number].cpu_update_us
        for number, reduced in self.reduced.items():
            self.compute = max(self.compute, reduced, every) + chunks[number].device_update_us
