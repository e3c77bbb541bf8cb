"""Swap instances that look like no transformer: random sizes, times and lifetimes, reproducible by name."""

import random
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal, TypeAlias

import msgspec

from solvers.ir.graph import Phase
from solvers.ir.swap import SwapLink, SwapOp, SwapProblem, SwapTensor
from solvers.swap.evaluate import least_budget

Order: TypeAlias = Literal["nested", "random", "crossing"]
"""How lifetimes lie: the last to leave returns first (nearly), in any order, or the first to leave returns first."""

BACKWARD = 1.5
"""Backward ops for each forward op."""
STATIC_BYTES, WORKSPACE_BYTES = 10**9, 10**8
SIZES, TIMES = (5.5, 8.2), (1.0, 3.3)
"""Powers of ten between which sizes (bytes) and op times (µs) are drawn."""


@dataclass(frozen=True)
class Irregular:
    """An instance by its numbers; `budget` is the share of the way from the least budget to the peak."""

    seed: int
    tensors: int
    order: Order = "nested"
    budget: float = 0.4
    out_bytes_per_s: int = 20_000_000_000
    in_bytes_per_s: int = 20_000_000_000
    launches: bool = False

    def build(self) -> SwapProblem:
        """The problem; the same on every machine."""
        source = random.Random(f"{self.seed} {self.tensors} {self.order}")
        forward, backward = self.tensors, int(BACKWARD * self.tensors)
        phases: list[Phase] = [*["forward"] * forward, *["backward"] * backward, "optimizer"]  # type: ignore[list-item]
        ops = tuple(self._op(number, phase, source) for number, phase in enumerate(phases))
        tensors = tuple(self._tensor(number, forward, backward, source) for number in range(self.tensors))
        memory = _memory(tensors, len(ops), source)
        link = SwapLink(out_bytes_per_s=self.out_bytes_per_s, in_bytes_per_s=self.in_bytes_per_s, latency_us=10)
        ample = SwapProblem(
            name=f"irregular-{self.order}-{self.tensors}-{self.budget:g}-{self.seed}",
            budget_bytes=max(memory),
            ops=ops,
            memory_bytes=memory,
            tensors=tensors,
            link=link,
            launch_us=7 if self.launches else 0,
        )
        least = least_budget(ample)
        return msgspec.structs.replace(ample, budget_bytes=int(least + self.budget * (max(memory) - least)))

    def _op(self, number: int, phase: Phase, source: random.Random) -> SwapOp:
        time = max(1, int(10 ** source.uniform(*TIMES)))
        launch = source.randrange(10, 200)
        return SwapOp(name=str(number), time_us=time, phase=phase, launch_us=launch if self.launches else 0)

    def _tensor(self, number: int, forward: int, backward: int, source: random.Random) -> SwapTensor:
        first = source.randrange(forward - 1)
        place = {"nested": 1 - (first + 1) / forward, "random": source.random(), "crossing": first / forward}[
            self.order
        ]
        last = forward + int(place * backward) + source.randrange(-3, 4)
        return SwapTensor(
            id=str(number),
            bytes=int(10 ** source.uniform(*SIZES)),
            last_forward_use=first,
            first_backward_use=min(max(forward, last), forward + backward - 1),
        )


def _memory(tensors: tuple[SwapTensor, ...], ops: int, source: random.Random) -> tuple[int, ...]:
    """A tensor is made up to three ops before its last forward use and freed behind its backward use."""
    change = [0] * (ops + 1)
    for tensor in tensors:
        change[max(0, tensor.last_forward_use - source.randrange(1, 4))] += tensor.bytes
        change[tensor.first_backward_use + 1] -= tensor.bytes
    return tuple(STATIC_BYTES + live + source.randrange(WORKSPACE_BYTES) for live in list(accumulate(change))[:ops])
