"""`python -m experiments.recompute.stack`: a pipeline stage of GPT-13B on a cluster, by shapes, under every policy.

Megatron's layers run as they are on the devices of one stage, in the order of 1F1B; each policy's plan is carried out
by a tape, and what is recomputed on the critical path and beside all-reduces is set beside two figures: what a walk
through one measured step predicts, and what the formulas and the timeline of the simulated pipelines say.
"""

import argparse
import gc
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import torch

from experiments.hardware import read_hardware
from experiments.recompute.figures import NS, hidden_ns
from experiments.recompute.stack_page import page
from experiments.recompute.stack_planning import Planned, Simulated, plan_stack, simulated
from experiments.recompute.stack_program import Done, Job, Stack, program
from experiments.recompute.step_log import StepLog, with_forwards
from experiments.refusals import refusing
from experiments.rows import commit
from experiments.shapes import read_shape
from runtime.ranks import run_ranks
from runtime.recompute.policy import BlockPolicy, store_everything, store_nothing
from solvers.workload import Parallelism

POLICIES = (
    "full", "selective", "uniform", "block", "checkmate-layer", "adapipe", "heu", "heu groups=2",
)  # fmt: skip
PLAIN = "no recomputation"
"""The row of training without a tape."""
AMPLE_BYTES = 1 << 41
"""Of each device: what does not fit the budget runs all the same, and the row says so."""
ROUNDS = 2
"""How often a policy is planned: first by predicted peaks, then with what these were off by."""


class Case(NamedTuple):
    """A stage of a model: shape, cluster, how the model is cut, samples of a microbatch, microbatches of a step."""

    shape: str = "gpt-13b"
    cluster: str = "lynx-nvlink"
    tensor: int = 4
    pipeline: int = 4
    stage: int = 0
    microbatch: int = 16
    microbatches: int = 8

    def stack(self) -> Stack:
        """The stage."""
        cut = Parallelism(
            tensor=self.tensor, pipeline=self.pipeline, microbatch=self.microbatch, microbatches=self.microbatches
        )
        return Stack(read_shape(self.shape), cut, self.stage, read_hardware(self.cluster))


class Ran(NamedTuple):
    """What a run of all devices was: the slowest step, the largest peak, what lay beside collectives, races."""

    done: list[Done]
    step_us: float
    peak_bytes: int
    hidden_us: float
    races: int

    def log(self) -> StepLog:
        """The measured step of the first device."""
        log = self.done[0].log
        assert log is not None
        return log


def execute(stack: Stack, policies: Sequence[BlockPolicy] | None, *, steps: int = 1, measured: bool = False) -> Ran:
    """Steps of the stage on all its devices under these policies, or (None) without a tape."""
    gc.collect()  # what an earlier run left in circles would count in this one's peak
    told = None if policies is None else tuple(policies)
    run = run_ranks(
        program(Job(stack, steps, told, measured)), stack.cut.tensor, hardware=stack.machine,
        capacity_bytes=AMPLE_BYTES, shapes_only=stack.shapes_only, races="record", timeout_s=600,
    )  # fmt: skip
    return Ran(
        done=run.values,
        step_us=max(one.step_us[-1] for one in run.values),
        peak_bytes=max(max(one.peak_bytes) for one in run.values),
        hidden_us=max(hidden_ns(report) for report in run.reports) / NS / steps,
        races=len(run.races),
    )


def measure(stack: Stack) -> StepLog:
    """One step that stores everything, with the forward passes of one that stores nothing."""
    count = stack.rank.layers
    everything, nothing = (
        execute(stack, store(count), measured=True).log() for store in (store_everything, store_nothing)
    )
    return with_forwards(everything, nothing)


def run_policy(spec: str, stack: Stack, log: StepLog, budget_bytes: int) -> tuple[Planned, Ran] | None:
    """The policy planned and executed; planned again if the prediction was off, as a session would; None: no plan."""
    best: tuple[Planned, Ran] | None = None
    allowed = budget_bytes
    for _ in range(ROUNDS):
        planned = plan_stack(spec, log, stack, allowed)
        if planned is None or (best is not None and planned.policies == best[0].policies):
            break
        ran = execute(stack, planned.policies)
        fits = ran.peak_bytes <= budget_bytes
        if best is None or (fits and (ran.step_us < best[1].step_us or best[1].peak_bytes > budget_bytes)):
            best = planned, ran
        allowed = budget_bytes + planned.predicted.peak_bytes - ran.peak_bytes
    return best


def run_case(case: Case, policies: Sequence[str], budget_bytes: int | None = None) -> Iterator[dict[str, Any]]:
    """The rows of a stage, as they come: without a tape first, then each policy; the budget is of each device."""
    torch.set_num_threads(1)
    stack = case.stack()
    budget = stack.machine.device().memory_bytes if budget_bytes is None else budget_bytes
    plain = execute(stack, None)
    yield _row(case, PLAIN, budget, plain, plain, None, None)
    log = measure(stack)
    for spec in policies:
        found, formulas = run_policy(spec, stack, log, budget), simulated(spec, stack, budget)
        planned, ran = (None, None) if found is None else found
        yield _row(case, spec, budget, plain, ran, planned, formulas)


def _row(
    case: Case, spec: str, budget: int, plain: Ran, ran: Ran | None, planned: Planned | None, formulas: Simulated | None
) -> dict[str, Any]:
    """A policy's row: executed, predicted, simulated; times in microseconds of one step."""
    row: dict[str, Any] = {**case._asdict(), "policy": spec, "budget_bytes": budget, "commit": commit()}
    row["layers"] = case.stack().rank.layers
    if ran is not None:
        row["executed"] = {
            "step_us": ran.step_us,
            "peak_bytes": ran.peak_bytes,
            "exposed_us": ran.step_us - plain.step_us,
            "hidden_us": ran.hidden_us - plain.hidden_us,
            "races": ran.races,
            "counts": None if ran.done[0].counts is None else asdict(ran.done[0].counts),
        }
    if planned is not None:
        row["predicted"] = asdict(planned.predicted) | {"objective_us": planned.objective_us}
    if formulas is not None:
        row["simulated"] = asdict(formulas)
    return row


@refusing
def main(arguments: Sequence[str] | None = None) -> int:
    """Runs what the command line says; 1: accesses raced."""
    parser = argparse.ArgumentParser(prog="python -m experiments.recompute.stack", description=__doc__)
    fields = Case()._asdict()
    for name, value in fields.items():
        parser.add_argument(f"--{name}", type=type(value), default=value, help=f"{value} where it is not given")
    parser.add_argument("--policies", nargs="+", default=list(POLICIES), metavar="POLICY", help="solvers by name")
    parser.add_argument("--out", type=Path, help="folder for rows.jsonl, to which is added, and table.md")
    told = parser.parse_args(arguments)
    case = Case(**{name: getattr(told, name) for name in fields})
    rows = []
    if told.out is not None:
        told.out.mkdir(parents=True, exist_ok=True)
        written = told.out / "rows.jsonl"
        rows = [json.loads(line) for line in written.read_text().splitlines()] if written.exists() else []
    for row in run_case(case, told.policies):
        rows.append(row)
        print(row["policy"], row.get("executed"), file=sys.stderr, flush=True)
        if told.out is not None:
            written.write_text("".join(json.dumps(one) + "\n" for one in rows))
            (told.out / "table.md").write_text(page(rows))
    print(page(rows), end="")
    return 1 if any(row.get("executed", {}).get("races") for row in rows) else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
