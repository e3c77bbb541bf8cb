"""`selective`: recompute the attention core only (Korthikanti et al. 2022), told by the names of its ops."""

import time
from dataclasses import dataclass

from solvers.ir.recompute import LayerOp, RecomputeLayerPlan, RecomputeLayerProblem
from solvers.ir.solution import Limits, Solution, Watch
from solvers.recompute.layer.answers import Ask
from solvers.recompute.layer.layer import Layer
from solvers.recompute.layer.policies import on_critical_path
from solvers.recompute.layer.rules import RULE

FUSED = ("flash attention", "flash attention for cpu", "efficient attention", "cudnn attention", "attention math")
WHOLE = (
    "flash attention", "core attention", "attention core", "scaled dot product attention",
    *(f"scaled dot product {kind}" for kind in FUSED),
)  # fmt: skip
"""Names of a core that is one op; `FUSED` as aten names what a tape records (aten/native_functions.yaml)."""
FIRST = ("scores", "attention scores", "qk", "qk matmul", *WHOLE)
"""Names of the core's first op: the product of queries and keys."""
LAST = ("context", "context matmul", "attention context", "av", "av matmul", *WHOLE)
"""Names of the core's last op: the product of probabilities and values."""


@dataclass(frozen=True)
class Selective:
    """Keep everything but the attention core, which is recomputed on the critical path.

    The core is every op on a path from the one named as in `FIRST` to the one named as in `LAST`, with the ops after
    the first that feed nothing else and read nothing (a dropout mask). FEASIBLE with bound None; UNKNOWN where the
    names do not tell the core, or where the plan does not fit. The last op's output is recomputed like the rest, as
    Megatron-LM does, which keeps it too.
    """

    NAME = "selective"

    def solve(
        self, problem: RecomputeLayerProblem, limits: Limits, watch: Watch | None = None
    ) -> Solution[RecomputeLayerPlan]:
        """The one plan of this rule."""
        ask = Ask(problem, self.NAME, limits, time.perf_counter())
        core = attention_core(problem.ops)
        if not core:
            return ask.unknown(
                f"no op is named {' or '.join(FIRST[:3])} before one named {' or '.join(LAST[:2])}, so the attention "
                "core cannot be told: name its first and last op so",
                engine=RULE,
            )
        layer = Layer.of(problem)
        kept = [i for i in layer.useful if problem.ops[i].needed and i not in core]
        return ask.ruled([on_critical_path(layer, kept).group(problem.layers)], RULE)


def attention_core(ops: tuple[LayerOp, ...]) -> frozenset[int]:
    """The ops of the attention core; empty where the names do not tell."""
    names = [_plain(op.name) for op in ops]
    first = [i for i, name in enumerate(names) if name in FIRST]
    last = [i for i, name in enumerate(names) if name in LAST]
    after = set(first[:1])
    for i, op in enumerate(ops):
        if after.intersection(op.inputs):
            after.add(i)
    core = set(last[:1]) & after
    for i in range(len(ops) - 1, -1, -1):
        if i in after and any(i in ops[k].inputs for k in core):
            core.add(i)
    readers = {i: {k for k, op in enumerate(ops) if i in op.inputs} for i in range(len(ops))}
    beside = {i for i in readers if first and i > first[0] and not ops[i].inputs and readers[i] and readers[i] <= core}
    return frozenset(core | beside)


def _plain(name: str) -> str:
    """A name without namespace, overload and underscores; aten::_scaled_dot_product_flash_attention is `WHOLE`."""
    return name.rpartition("::")[2].partition(".")[0].replace("_", " ").strip().lower()
