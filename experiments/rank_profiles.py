"""`python -m experiments.rank_profiles [--out DIR]`: one training step of large models, a rank each, by shapes alone.

Each case runs in a process of its own, whose largest memory and time are taken; the bytes that its forward pass keeps
are set beside the closed formula of `solvers/workload`.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from experiments.hardware import read_hardware
from experiments.refusals import refusing
from experiments.shapes import read_shape
from solvers.ir.errors import InvalidInput
from solvers.ir.graph import OpGraph
from solvers.workload import ModelShape, Parallelism, megatron_layer, stage_extras

HARDWARE, CLUSTER, CAPACITY_BYTES = "h200", "lynx-nvlink-8", 1 << 41
"""What device sim models, made large enough for whole models; the cluster only lets the formulas be asked."""
GIB = 1 << 30
LOSS_BYTES = 8
"""The loss and the weight of all targets, two numbers that the backward pass reads."""


class Case(NamedTuple):
    """A shape, tensor parallelism, pipeline stages, the stage, and samples of the microbatch."""

    shape: str
    tensor: int
    pipeline: int = 1
    stage: int = 0
    microbatch: int = 1

    @property
    def cut(self) -> Parallelism:
        """How the model is cut."""
        return Parallelism(tensor=self.tensor, pipeline=self.pipeline, microbatch=self.microbatch)


def read_case(text: str) -> Case:
    """A case as JSON, its figures in their order or by name; raises `InvalidInput` for anything else."""
    try:
        given = json.loads(text)
        return Case(**given) if isinstance(given, dict) else Case(*given)
    except (ValueError, TypeError) as error:
        example = json.dumps(Case("llama-2-7b", 1))
        raise InvalidInput(f"--case is {text!r}, no shape and its cut: give JSON, as in {example}") from error


CASES = (
    Case("llama-2-7b", 1),
    Case("llama-2-13b", 1),
    Case("llama-2-13b", 2),
    Case("llama-2-70b", 8),
    Case("llama-2-70b", 8, 4, 0),
    Case("llama-2-70b", 8, 4, 3),
    Case("gpt-175b", 8),
    Case("gpt-175b", 8, 8, 0),
    Case("gpt-175b", 8, 8, 4),
    Case("gpt-175b", 8, 8, 7),
)


class Formula(NamedTuple):
    """What a stage keeps by `solvers/workload`, and what its formulas leave out: statistics of norms, the loss."""

    kept_bytes: int
    left_out_bytes: int


def formula(shape: ModelShape, case: Case) -> Formula:
    """The closed formula of a stage; layer norms keep two numbers a token in the activations' type, others one of 4."""
    cluster, cut = read_hardware(CLUSTER), case.cut
    layers = shape.layers // cut.pipeline
    kept = layers * megatron_layer(shape, cut, cluster).kept_bytes
    kept += sum(extra.activation_bytes for extra in stage_extras(shape, cut, cluster, case.stage))
    last = case.stage == cut.pipeline - 1
    norms = 2 * layers + last
    tokens = shape.sequence * cut.microbatch
    return Formula(kept, norms * tokens * 4 + (LOSS_BYTES if last else 0))


def kept_bytes(graph: OpGraph) -> int:
    """Bytes of activations that the forward pass makes and the backward pass reads."""
    return sum(tensor.bytes for tensor in graph.tensors if tensor.saved and tensor.kind == "activation")


def profile_case(case: Case) -> dict[str, str | int | float]:
    """Profiles one step of a rank by shapes alone, in this process, and sets it beside the formula."""
    import torch

    from experiments.models.rank import Rank
    from runtime.device import use_sim
    from runtime.profile import profile_step

    began = time.monotonic()
    sim = use_sim(read_hardware(HARDWARE), capacity_bytes=CAPACITY_BYTES, shapes_only=True)
    shape = read_shape(case.shape)
    model, optimizer, step = Rank(shape=shape, cut=case.cut, stage=case.stage).build(sim.device)
    built = time.monotonic()
    step()
    torch.accelerator.synchronize()
    stepped = time.monotonic()
    graph = profile_step(step, sim.device, model=model, optimizer=optimizer, warmup=0)
    closed = formula(shape, case)
    return {
        **case._asdict(),
        "parameters": sum(one.numel() for one in model.parameters()),
        "operators": len(graph.ops),
        "kept_bytes": kept_bytes(graph),
        "formula_bytes": closed.kept_bytes,
        "left_out_bytes": closed.left_out_bytes,
        "peak_bytes": max(graph.memory_bytes),
        "virtual_us": sum(op.time_us for op in graph.ops),
        "unmeasured_kernels": len(sim.unmeasured_temporaries()),
        "estimated_kernels": len(sim.estimated_temporaries()),
        "build_s": round(built - began, 2),
        "step_s": round(stepped - built, 2),
        "profile_s": round(time.monotonic() - stepped, 2),
        "resident_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def table(rows: Sequence[dict[str, str | int | float]]) -> str:
    """The rows for readers."""
    head = ["model", "t × p", "stage", "parameters of the rank", "operators", "kept (GiB)", "formula + left out (GiB)",
            "difference (bytes)", "peak (GiB)", "step here (s)", "memory here (MB)"]  # fmt: skip
    lines = ["| " + " | ".join(head) + " |", "|---|---|---|" + "---:|" * (len(head) - 3)]
    for row in rows:
        kept, closed = int(row["kept_bytes"]), int(row["formula_bytes"]) + int(row["left_out_bytes"])
        cells = [
            row["shape"],
            f"{row['tensor']} × {row['pipeline']}",
            row["stage"],
            f"{int(row['parameters']) / 1e9:.2f}e9",
            row["operators"],
            f"{kept / GIB:.3f}",
            f"{closed / GIB:.3f}",
            kept - closed,
            f"{int(row['peak_bytes']) / GIB:.1f}",
            row["step_s"],
            round(int(row["resident_bytes"]) / 1e6),
        ]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines) + "\n"


@refusing
def main(arguments: Sequence[str] | None = None) -> int:
    """Runs every case, or the one that `--case` describes, which is then printed as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="folder for rows.jsonl and table.md")
    parser.add_argument("--case", help="one case as JSON: shape, tensor, pipeline, stage, microbatch")
    told = parser.parse_args(arguments)
    if told.case is not None:
        print(json.dumps(profile_case(read_case(told.case))))
        return 0
    if told.out is not None:
        told.out.mkdir(parents=True, exist_ok=True)
    rows = []
    for case in CASES:
        command = [sys.executable, "-m", __spec__.name, "--case", json.dumps(case)]
        rows.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    print(table(rows), end="")
    if told.out is not None:
        (told.out / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (told.out / "table.md").write_text(table(rows))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
