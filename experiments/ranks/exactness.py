"""`python -m experiments.ranks.exactness [--out DIR]`: the arithmetic of memory on plans that nobody tuned it for.

Every plan runs by shapes alone, with memory enough, and each stage's peak is set beside `experiments.ranks.footprint`.
Of some, exactly the arithmetic's memory must do, and a block less on a rank of any stage must not: in processes of
their own, as one that runs out of memory leaves its tensors behind.
"""

import argparse
import gc
import json
import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

from experiments.ranks.large import Plan, apart, arithmetic, plans_with_arithmetic, run_plan
from experiments.refusals import refusing

CUTS = ((1, 2, 2), (2, 2, 3), (2, 4, 4), (4, 2, 4), (4, 4, 5), (8, 2, 3))
"""Tensor parallelism, stages, microbatches."""
MODELS = ("llama-2-7b", "llama-2-13b", "llama-2-70b")
SEQUENCES = (2048, 4096, 8192)
SQUEEZED = {("llama-2-7b", 4, 8192), ("llama-2-13b", 2, 2048), ("llama-2-70b", 8, 2048)}
"""Models, tensor parallelism and sequences of which the limits are tried at two stages."""
NODES_OF = {(4, 4): "lynx-nvlink"}
"""Clusters whose nodes a stage fills; else nodes of eight."""


def plans() -> list[Plan]:
    """Of each model and cut, one, two and three layers a stage at the three sequences."""
    return [
        Plan(
            shape=model, layers=stages * (1 + number), tensor=tensor, pipeline=stages, microbatches=microbatches,
            cluster=NODES_OF.get((tensor, stages), Plan().cluster), sequence=sequence,
        )
        for model, (tensor, stages, microbatches) in product(MODELS, CUTS)
        for number, sequence in enumerate(SEQUENCES)
    ]  # fmt: skip


def squeezed(plan: Plan) -> bool:
    """Whether its limits are tried."""
    return (plan.shape, plan.tensor, plan.sequence) in SQUEEZED and plan.pipeline == 2


def judged(plan: Plan) -> dict[str, Any]:
    """One row: peaks by stage, found and by arithmetic, and what came of exactly so much and of a block less."""
    gc.collect()
    found = run_plan(plan)["peak_bytes"]
    stages = [found[stage * plan.tensor : (stage + 1) * plan.tensor] for stage in range(plan.pipeline)]
    tried = [apart(one)["outcome"] for one in plans_with_arithmetic(plan)] if squeezed(plan) else []
    return {
        "plan": plan._asdict(),
        "found_bytes": [max(stage) for stage in stages],
        "arithmetic_bytes": [arithmetic(plan, stage).peak for stage in range(plan.pipeline)],
        "exactly": tried[:1],
        "a_block_less": tried[1:],
    }


def off(row: dict[str, Any]) -> int:
    """The most bytes by which a stage is off."""
    found: list[int] = row["found_bytes"]
    said: list[int] = row["arithmetic_bytes"]
    return max(abs(one - other) for one, other in zip(found, said, strict=True))


def table(rows: Sequence[dict[str, Any]]) -> str:
    """A line for each plan."""
    head = ["model", "layers", "t × p", "microbatches", "sequence", "found (GiB), by stage", "most off (bytes)",
            "exactly so much", "a block less"]  # fmt: skip
    lines = ["| " + " | ".join(head) + " |", "|---|---:|---|---:|---:|---|---:|---|---|"]
    for row in rows:
        plan = Plan(**row["plan"])
        cells = [
            plan.shape,
            plan.layers,
            f"{plan.tensor} × {plan.pipeline}",
            plan.microbatches,
            plan.sequence,
            ", ".join(f"{size / 2**30:.3f}" for size in row["found_bytes"]),
            off(row),
            ", ".join(row["exactly"]) or "–",
            ", ".join(row["a_block_less"]) or "–",
        ]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines) + "\n"


def holds(row: dict[str, Any]) -> bool:
    """Whether the arithmetic is right to the byte, and so are the limits, where they were tried."""
    limits = set(row["exactly"]) <= {"ok"} and set(row["a_block_less"]) <= {"out-of-memory"}
    return off(row) == 0 and limits


@refusing
def main(arguments: Sequence[str] | None = None) -> int:
    """Runs all plans; 1 where the arithmetic is wrong anywhere."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="folder for exactness.jsonl and exactness.md")
    told = parser.parse_args(arguments)
    rows = [judged(plan) for plan in plans()]
    print(table(rows), end="")
    if told.out is not None:
        told.out.mkdir(parents=True, exist_ok=True)
        (told.out / "exactness.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (told.out / "exactness.md").write_text(table(rows))
    return 0 if all(map(holds, rows)) else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
