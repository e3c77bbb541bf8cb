"""Megatron-LM's rules as baselines: `full`, `uniform` and `block` recompute whole layers on the critical path."""

import time
from bisect import bisect_left
from dataclasses import dataclass

from solvers.ir.errors import InvalidInput
from solvers.ir.recompute import LayerGroup, RecomputeLayerPlan, RecomputeLayerProblem
from solvers.ir.solution import Limits, Solution, Watch
from solvers.recompute.layer.answers import Ask
from solvers.recompute.layer.front import Policy
from solvers.recompute.layer.layer import Layer
from solvers.recompute.layer.policies import everything_again, keep_all, on_critical_path

RULE = "rule"


def _again(problem: RecomputeLayerProblem, whole: bool) -> Policy:
    layer = Layer.of(problem)
    return everything_again(layer) if whole else on_critical_path(layer)


@dataclass(frozen=True)
class Full:
    """Keep the layer inputs only, and recompute before the backward pass what it depends on.

    `whole` True runs the whole layer again, as Megatron-LM's checkpointing does, also ops that no backward op depends
    on. FEASIBLE with bound None, or UNKNOWN where that does not fit.
    """

    whole: bool = False
    NAME = "full"

    def solve(
        self, problem: RecomputeLayerProblem, limits: Limits, watch: Watch | None = None
    ) -> Solution[RecomputeLayerPlan]:
        """The one plan of this rule."""
        ask = Ask(problem, self.NAME, limits, time.perf_counter())
        return ask.ruled([_again(problem, self.whole).group(problem.layers)], RULE)


@dataclass(frozen=True)
class Uniform:
    """Megatron-Uniform: checkpoints at every `chunk` layers, each chunk recomputed as a whole.

    This kind keeps every layer's input, so only chunks of one layer can be stated, and their plan is `full`'s; for
    larger chunks the answer is UNKNOWN and says what they would need.
    """

    chunk: int = 1
    whole: bool = False
    NAME = "uniform"

    def __post_init__(self) -> None:
        """Refuse chunks without layers."""
        if self.chunk < 1:
            raise InvalidInput(f"chunk is {self.chunk}, below 1: give at least one layer")

    def solve(
        self, problem: RecomputeLayerProblem, limits: Limits, watch: Watch | None = None
    ) -> Solution[RecomputeLayerPlan]:
        """`full`'s plan for chunks of one layer."""
        ask = Ask(problem, self.NAME, limits, time.perf_counter())
        policy = _again(problem, self.whole)
        if self.chunk == 1:
            return ask.ruled([policy.group(problem.layers)], RULE)
        return ask.unknown(
            f"chunks of {self.chunk} layers would need {self._bytes(problem, policy)} of {problem.budget_bytes} bytes, "
            "but this kind keeps every layer's input: leave chunk at 1",
            engine=RULE,
        )

    def _bytes(self, problem: RecomputeLayerProblem, policy: Policy) -> int:
        """Inputs of every chunk for every microbatch, and all of one chunk's outputs and inputs while it is redone."""
        layers = min(self.chunk, problem.layers)
        again = sum(problem.ops[i].output_bytes for i, _ in policy.recomputed)
        kept = problem.inflight_microbatches * -(-problem.layers // self.chunk) * problem.layer_input_bytes
        return problem.static_bytes + kept + layers * again + (layers - 1) * problem.layer_input_bytes


@dataclass(frozen=True)
class Block:
    """Megatron-Block: `full` for the first n layers, everything kept in the others; the least n that fits.

    FEASIBLE with bound None (OPTIMAL where everything fits), or UNKNOWN where no n fits.
    """

    whole: bool = False
    NAME = "block"

    def solve(
        self, problem: RecomputeLayerProblem, limits: Limits, watch: Watch | None = None
    ) -> Solution[RecomputeLayerPlan]:
        """The best plan of this rule."""
        ask = Ask(problem, self.NAME, limits, time.perf_counter())
        again, kept = _again(problem, self.whole), keep_all(Layer.of(problem))

        def groups(count: int) -> list[LayerGroup]:
            made = [again.group(count)] if count else []
            return made if count == problem.layers else [*made, kept.group(problem.layers - count)]

        mixed = range(2, problem.layers)  # what they need changes by the same for each layer more
        least = bisect_left(mixed, True, key=lambda count: ask.fits(groups(count)))
        for count in dict.fromkeys((0, min(1, problem.layers), *mixed[least : least + 1], problem.layers)):
            if ask.fits(groups(count)):
                said = f"{count} of {problem.layers} layers recompute"
                return ask.feasible(groups(count), engine=RULE, reason=said)
        return ask.ruled(groups(problem.layers), RULE)
