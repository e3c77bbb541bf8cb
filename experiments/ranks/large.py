"""`python -m experiments.ranks.large [--out DIR]`: a step of Llama-2 70B on 16 devices, by shapes alone.

Tensor parallelism 8, two pipeline stages under torch.distributed's `Schedule1F1B`, every rank's race check and report.
Each run is a process of its own, whose time and memory are taken: one with memory enough, which finds the ranks' peaks;
one with exactly what the arithmetic says; and for a rank of each stage one with a block less, which must run out of
memory.
"""

import argparse
import gc
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

from experiments.hardware import read_hardware
from experiments.models.rank import Rank
from experiments.rank_profiles import Case, formula
from experiments.ranks.footprint import STATES, Footprint, footprint
from experiments.ranks.ledger import BLOCK_BYTES
from experiments.ranks.megatron import ParallelStage, split_cross_entropy
from experiments.ranks.record import figures_of_rank
from experiments.refusals import refusing
from experiments.rows import commit
from experiments.shapes import read_shape
from runtime.ranks import run_ranks
from solvers.workload import ModelShape, Parallelism, megatron_layer, stage_extras, stage_graph, static_bytes
from solvers.workload.stage import BYTES_PER_PARAMETER, inflight

GIB = 1 << 30


class Plan(NamedTuple):
    """A model of `conf/model/shapes`, how many of its layers, how they are cut, and the cluster."""

    shape: str = "llama-2-70b"
    layers: int = 80
    tensor: int = 8
    pipeline: int = 2
    microbatches: int = 2
    cluster: str = "lynx-nvlink-8"
    capacity_bytes: tuple[int, ...] = (1 << 41,)
    """Each rank's memory, or one for all of them."""
    sequence: int | None = None
    """Its own, in place of the shape's."""

    @property
    def ranks(self) -> int:
        """How many there are: those of a stage stand together."""
        return self.tensor * self.pipeline

    @property
    def cut(self) -> Parallelism:
        """How the model is cut; a microbatch is one sample."""
        return Parallelism(tensor=self.tensor, pipeline=self.pipeline, microbatch=1, microbatches=self.microbatches)

    def model(self) -> ModelShape:
        """The shape with so many layers."""
        shape = read_shape(self.shape)
        return msgspec.structs.replace(shape, layers=self.layers, sequence=self.sequence or shape.sequence)


def arithmetic(plan: Plan, stage: int) -> Footprint:
    """What a stage's device needs, tensor by tensor."""
    return footprint(plan.model(), plan.cut, stage)


def by_formulas(plan: Plan, stage: int) -> int:
    """The same by the closed formulas of `solvers/workload`, and what the program has besides, in bytes.

    Parameters, gradients, moments; what other microbatches in flight keep; the most that lives of the running one, and
    the statistics of its norms; the mask and the angles; what is received into, and outputs kept for their gradients.
    """
    shape, cut, cluster = plan.model(), plan.cut, read_hardware(plan.cluster)
    layers = shape.layers // plan.pipeline
    layer = megatron_layer(shape, cut, cluster)
    extras = {extra.name: extra for extra in stage_extras(shape, cut, cluster, stage)}
    graph = stage_graph(layer, layers, embedding=extras.get("embedding"), head=extras.get("head"))
    closed = formula(shape, Case(plan.shape, plan.tensor, plan.pipeline, stage))
    flying, last = inflight(cut, stage), stage == plan.pipeline - 1
    width = shape.hidden // shape.heads
    hidden = 2 * shape.sequence * shape.hidden
    neighbours = (stage > 0) + (not last)
    logits = 2 * shape.sequence * -(-shape.vocab // plan.tensor)
    return (
        static_bytes(shape, cut, stage, layers) // BYTES_PER_PARAMETER * 2 * STATES
        + (flying - 1) * (closed.kept_bytes + closed.left_out_bytes)
        + max(graph.memory_bytes)
        + closed.left_out_bytes
        + shape.sequence**2 * (shape.heads // shape.kv_heads)
        + 2 * 2 * shape.sequence * width
        # Of each microbatch one message is the graph's already: the stage's input, or the gradient of its output.
        + neighbours * (plan.microbatches - 1) * hidden
        + flying * (logits if last else hidden)
    )


def program(plan: Plan) -> Callable[[int], tuple[int, list[float]]]:
    """What each rank runs: an ordinary program. Gives its parameters and, on the last stage, the losses."""
    shape = plan.model()

    def train(number: int) -> tuple[int, list[float]]:
        dist.init_process_group("sim")
        device = torch.device("sim", number)
        mesh = init_device_mesh("sim", (plan.pipeline, plan.tensor), mesh_dim_names=("pipeline", "tensor"))
        beside = mesh.get_group("tensor")
        rank = Rank(shape=shape, cut=plan.cut, stage=number // plan.tensor)
        module = ParallelStage(rank, device, beside)
        stage = _stage(plan, rank, module, device, mesh.get_group("pipeline"))
        schedule = Schedule1F1B(
            stage, plan.microbatches, lambda logits, words: split_cross_entropy(logits, words.squeeze(0), beside)
        )
        optimizer = torch.optim.AdamW(module.parameters(), lr=1e-4, fused=True)
        _make_states(module, optimizer)
        words = torch.zeros(plan.microbatches, shape.sequence, 1, dtype=torch.int64, device=device)
        losses: list[Tensor] = []
        told: dict[str, Any] = {"target": words, "losses": losses} if rank.last else {}
        schedule.step(*((words,) if rank.first else ()), return_outputs=False, **told)
        optimizer.step()
        numbers = [loss.item() for loss in losses]
        dist.destroy_process_group()
        return sum(one.numel() for one in module.parameters()), numbers

    return train


def _stage(plan: Plan, rank: Rank, module: ParallelStage, device: torch.device, group: Any) -> PipelineStage:
    """The stage, told what comes and goes: without bytes stages cannot tell each other."""
    shape = rank.shape
    words = torch.empty(1, shape.sequence, 1, dtype=torch.int64, device="meta")
    hidden, logits = (
        torch.empty(shape.sequence, 1, width, dtype=rank.dtype, device="meta", requires_grad=True)
        for width in (shape.hidden, -(-shape.vocab // plan.tensor))
    )
    given, made = words if rank.first else hidden, logits if rank.last else hidden
    return PipelineStage(module, rank.stage, plan.pipeline, device, input_args=given, output_args=made, group=group)


def _make_states(module: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Gradients that stay, as Megatron-LM's do, and the moments, by a step of zeros, as one resumes from a file."""
    for parameter in module.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()


def run_plan(plan: Plan) -> dict[str, Any]:
    """Runs it in this process: peaks and times by rank, or what ran out of memory."""
    torch.set_num_threads(1)
    gc.freeze()  # what was imported need not be looked through again and again
    began, before = time.monotonic(), time.process_time()
    found: dict[str, Any] = {**plan._asdict(), "commit": commit()}
    each = list(plan.capacity_bytes) if len(plan.capacity_bytes) > 1 else plan.capacity_bytes[0]
    try:
        run = run_ranks(
            program(plan), plan.ranks, hardware=read_hardware(plan.cluster), capacity_bytes=each, shapes_only=True,
            races="record", timeout_s=600,
        )  # fmt: skip
    except RuntimeError as error:
        refusal = error if isinstance(error, torch.OutOfMemoryError) else error.__cause__  # pipelining wraps it
        if not isinstance(refusal, torch.OutOfMemoryError):
            raise
        found |= {"outcome": "out-of-memory", "said": f"{str(refusal).splitlines()[0]} {' '.join(error.__notes__)}"}
    else:
        figures = [figures_of_rank(report) for report in run.reports]
        found |= {
            "outcome": "ok",
            "parameters": [count for count, _ in run.values],
            "losses": run.values[-1][1],
            "makespan_ns": run.makespan_ns,
            "peak_bytes": [one.peak_bytes for one in figures],
            "compute_us": [one.compute_us for one in figures],
            "comm_us": [one.comm_us for one in figures],
            "races": len(run.races),
            "records": len(run.trace),
            "estimated_kernels": sum(run.sim.estimated_temporaries().values()),
            "unmeasured_kernels": sum(run.sim.unmeasured_temporaries().values()),
        }
    return found | {
        "wall_s": round(time.monotonic() - began, 1),
        "cpu_s": round(time.process_time() - before, 1),
        "resident_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def plans_with_arithmetic(plan: Plan) -> list[Plan]:
    """The same with exactly the arithmetic's bytes as memory, and with a block less on the first rank of each stage."""
    needed = [arithmetic(plan, rank // plan.tensor).peak for rank in range(plan.ranks)]
    short = [
        [size - BLOCK_BYTES * (rank == first) for rank, size in enumerate(needed)]
        for first in range(0, plan.ranks, plan.tensor)
    ]
    return [plan._replace(capacity_bytes=tuple(each)) for each in (needed, *short)]


def stage_table(plan: Plan, row: dict[str, Any]) -> str:
    """The stages: the arithmetic's terms in GiB, its sum beside what was found, and the closed formulas' sum."""
    head = ["stage", "ranks", *Footprint._fields, "arithmetic (bytes)", "found (bytes)", "difference",
            "formulas (GiB)", "off", "computes", "communicates"]  # fmt: skip
    lines = ["| " + " | ".join(head) + " |", "|---|---|" + "---:|" * (len(head) - 2)]
    for stage in range(plan.pipeline):
        terms, ranks = arithmetic(plan, stage), range(stage * plan.tensor, (stage + 1) * plan.tensor)
        most, closed = max(row["peak_bytes"][rank] for rank in ranks), by_formulas(plan, stage)
        shares = [
            max(row[name][rank] for rank in ranks) * 1e3 / row["makespan_ns"] for name in ("compute_us", "comm_us")
        ]
        cells = [
            str(stage),
            f"{ranks[0]} to {ranks[-1]}",
            *(f"{term / GIB:.3f}" for term in terms),
            f"{terms.peak:,}",
            f"{most:,}",
            f"{most - terms.peak:,}",
            f"{closed / GIB:.3f}",
            f"{closed / most - 1:+.2%}",
            *(f"{share:.1%}" for share in shares),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def run_table(rows: Sequence[dict[str, Any]], names: Sequence[str]) -> str:
    """The runs: what came of each, and what it took here."""
    head = ["memory of the ranks", "outcome", "step (virtual ms)", "races", "wall here (s)", "CPU here (s)",
            "memory here (MB)"]  # fmt: skip
    lines = ["| " + " | ".join(head) + " |", "|---|---|" + "---:|" * (len(head) - 2)]
    for name, row in zip(names, rows, strict=True):
        done = row["outcome"] == "ok"
        cells = [
            name,
            row["outcome"],
            f"{row['makespan_ns'] / 1e6:.3f}" if done else "–",
            str(row["races"]) if done else "–",
            f"{row['wall_s']:.0f}",
            f"{row['cpu_s']:.0f}",
            f"{row['resident_bytes'] / 1e6:.0f}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def apart(plan: Plan) -> dict[str, Any]:
    """Runs it in a process of its own: one that runs out of memory leaves its tensors behind."""
    command = [sys.executable, "-m", "experiments.ranks.large", "--case", json.dumps(plan._asdict())]
    found: dict[str, Any] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    return found


@refusing
def main(arguments: Sequence[str] | None = None) -> int:
    """Runs all, or the plan that `--case` describes, which is then printed as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="folder for large.jsonl and large.md")
    parser.add_argument("--case", help="one plan as JSON: the fields of Plan")
    told = parser.parse_args(arguments)
    if told.case is not None:
        plan = Plan(**json.loads(told.case))
        print(json.dumps(run_plan(plan._replace(capacity_bytes=tuple(plan.capacity_bytes)))))
        return 0
    plan = Plan()
    rows = [apart(one) for one in (plan, *plans_with_arithmetic(plan))]
    short = [f"a block less on rank {first}" for first in range(0, plan.ranks, plan.tensor)]
    text = stage_table(plan, rows[0]) + "\n" + run_table(rows, ["2 TiB each", "exactly the arithmetic's", *short])
    print(text, end="")
    if told.out is not None:
        told.out.mkdir(parents=True, exist_ok=True)
        (told.out / "large.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (told.out / "large.md").write_text(text)
    return 0 if [row["outcome"] for row in rows] == ["ok", "ok", *["out-of-memory"] * plan.pipeline] else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
