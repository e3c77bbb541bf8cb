"""`python -m experiments.joint.rivals --out FOLDER`: PyTorch's own planners of recomputation beside ours, equal graphs.

Each plans for shares of the memory that activations take; our judge says what peak its policy really has.
"""

import json
import re
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

import click
import msgspec
import torch
from torch import nn
from torch.nn import functional

from experiments.command_line import run
from experiments.graphs.traced import UNet
from experiments.hardware import read_hardware
from experiments.joint.aot import AotProblem, partitioned, traced
from experiments.joint.cases import Case
from experiments.joint.policies import judged_policy
from experiments.joint.rivals_page import page
from experiments.models import Gpt, GptShape
from solvers.ir import EngineMissing, InvalidInput, JointProblem, Limits
from solvers.ir.policy import Policy
from solvers.joint.draft import measure, plan_of
from solvers.joint.given import given_of
from solvers.joint.instances import peak_bytes
from solvers.joint.policy import read_policy
from solvers.joint.singles import recompute_only
from solvers.joint.solver import Joint
from solvers.planner import require_valid

Planner = Callable[[JointProblem, float], tuple[Policy, float]]
SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Of what activations take at the peak with everything kept."""
LAYER = re.compile(r"layer (\d+) ")
MACHINE, WORK, LONGEST_S = "a100-sxm-80", 0.02, 1800.0
FORMULAS = ("llama-3-8b", "mixtral-8x7b", "gpt-1.3b")
KNAPSACKS = ("greedy", "dp", "ilp")


def knapsack(name: str, problem: JointProblem, share: float) -> tuple[Policy, float]:
    """A knapsack of torch's partitioner over the outputs that the backward pass reads; the seconds that it took."""
    from torch._functorch._activation_checkpointing import knapsack as theirs

    solve = getattr(theirs, f"{name}_knapsack")
    items, sizes, times = _items(problem)
    began = time.perf_counter()
    _, saved, recomputed = solve([size / sum(sizes) for size in sizes], times, share)
    took = time.perf_counter() - began
    regions = _layers(problem)
    policy = Policy(name=name, saved=tuple(saved), recomputed=tuple(recomputed), nodes=tuple(items), regions=regions)
    return policy, took


def sac_milp(problem: JointProblem, share: float) -> tuple[Policy, float]:
    """The MILP of torch.distributed._tools.sac_ilp for one module, which is the whole model here."""
    with suppress(EngineMissing):  # pulp loads highspy if it can, beside whose library that of ortools cannot be loaded
        import solvers.engines.cpsat  # noqa: F401
    from torch.distributed._tools.sac_estimator import SACStats
    from torch.distributed._tools.sac_ilp import get_optimal_checkpointing_policy_per_module

    items, sizes, times = _items(problem)
    stats = SACStats(
        func_names=[problem.ops[op].name for op in items],
        runtimes=times,
        memory=sizes,
        view_like_ops=[],
        rand_ops=[],
        saved_autograd_ops=list(range(len(items))),
        inplace_ops=[],
        force_store_random=False,
    )
    began = time.perf_counter()
    decided = get_optimal_checkpointing_policy_per_module(stats, share)
    took = time.perf_counter() - began
    parts: list[tuple[int, ...]] = [
        tuple(op for op, saved in zip(items, decided, strict=True) if saved == value) for value in (1, 0)
    ]
    return Policy(name="sac_milp", saved=parts[0], recomputed=parts[1], regions=_layers(problem)), took


def _items(problem: JointProblem) -> tuple[list[int], list[int], list[float]]:
    """What autograd would save inside the layers: ops that the backward pass reads, their bytes and milliseconds."""
    read = read_policy(problem, Policy(name="", recomputed=("*",), regions=_layers(problem)))
    used = {i for op in problem.ops[read.backward :] for i in op.inputs if problem.ops[i].output_bytes}
    items = sorted(used & read.recomputed)
    return items, [problem.ops[op].output_bytes for op in items], [problem.ops[op].time_us / 1000 for op in items]


def _layers(problem: JointProblem) -> tuple[tuple[int, int], ...]:
    """First and last op of each layer's forward pass: each is a checkpointed region, as users wrap blocks."""
    backward = read_policy(problem, Policy(name="", saved=("*",))).backward
    ops: dict[str, list[int]] = {}
    for number, op in enumerate(problem.ops[:backward]):
        found = LAYER.match(op.name)
        if found is not None:
            ops.setdefault(found[1], []).append(number)
    return tuple((numbers[0], numbers[-1]) for numbers in ops.values())


class _Loss(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = UNet()

    def forward(self, images: torch.Tensor, masks: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(self.net(images), masks)


def _gpt() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    shape = GptShape(layers=6, width=256, context=256, batch=8, dropout=0.0)
    text = torch.zeros(shape.batch, shape.context, dtype=torch.long)
    return Gpt(shape), (text, text)


def _unet() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    return _Loss(), (torch.randn(4, 3, 64, 64), torch.zeros(4, 64, 64, dtype=torch.long))


TRACED = {"gpt, 6 layers (AOT)": _gpt, "u-net (AOT)": _unet}
"""Models that AOTAutograd traces, for the partitioner itself."""


@cache
def _aot(model: str) -> AotProblem:
    return AotProblem(traced(model, TRACED[model]), read_hardware(MACHINE))


def planners(model: str) -> Mapping[str, Planner]:
    """Who plans the model, by name."""
    if model in TRACED:
        problem = _aot(model)
        return {
            f"partitioner, {name}": lambda _, share, name=name: partitioned(problem, name, share)  # type: ignore[misc]
            for name in KNAPSACKS
        }
    found: dict[str, Planner] = {f"{name}_knapsack": partial(knapsack, name) for name in KNAPSACKS}
    return {**found, "sac_ilp": sac_milp}


def problem_of(model: str) -> JointProblem:
    """The model at no budget in particular."""
    return _aot(model).problem(0) if model in TRACED else Case(model, MACHINE, 1.0).problem()


def at_share(problem: JointProblem, share: float) -> JointProblem:
    """The problem with that share of what activations take at the peak."""
    most = peak_bytes(problem)
    budget = problem.static_bytes + round(share * (most - problem.static_bytes))
    return msgspec.structs.replace(problem, budget_bytes=budget)


def rows_of(model: str) -> list[dict[str, Any]]:
    """A row for each planner and share: budget, true peak, step, seconds; and ours at the same budgets."""
    whole, rows = problem_of(model), []
    for planner, plan in planners(model).items():
        for share in SHARES:
            problem = at_share(whole, share)
            policy, took = plan(problem, share)
            judged = judged_policy(problem, policy)
            assert judged.peak is not None
            rows.append({
                "model": model, "planner": planner, "share": share, "s": round(took, 3),
                "budget_bytes": problem.budget_bytes - problem.static_bytes,
                "peak_bytes": judged.peak.bytes - problem.static_bytes,
                "step_us": judged.step_us, "base_us": judged.base_us,
            })  # fmt: skip
    return [*rows, *(row for share in SHARES for row in _ours(model, at_share(whole, share), share))]


def _ours(model: str, problem: JointProblem, share: float) -> list[dict[str, Any]]:
    """Recomputation alone, and joint, at that budget; no step where there is no plan."""
    limits, given = Limits(time_s=LONGEST_S, work=WORK), given_of(problem)
    began = time.perf_counter()
    draft = recompute_only(given, limits)
    took = [time.perf_counter() - began]
    steps: list[int | None] = [None]
    if draft is not None and (found := measure(given, draft)).violation is None:
        require_valid(problem, plan_of(given, draft), "opt")
        steps = [found.objective_us]
    began = time.perf_counter()
    answer = Joint().solve(problem, limits)
    took.append(time.perf_counter() - began)
    if answer.plan is not None:
        require_valid(problem, answer.plan, "joint")
    return [
        {
            "model": model, "planner": planner, "share": share, "s": round(s, 3),
            "budget_bytes": problem.budget_bytes - problem.static_bytes, "peak_bytes": None, "step_us": step,
            "base_us": given.base_us,
        }
        for planner, s, step in zip(("opt", "joint"), took, (*steps, answer.objective), strict=True)
    ]  # fmt: skip


def rows_kept(file: Path) -> list[dict[str, Any]]:
    """The rows of an earlier run. Raises `InvalidInput` with the line that is none."""
    rows = []
    for number, line in enumerate(file.read_bytes().splitlines(), 1):
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if not isinstance(row, dict) or not isinstance(row.get("model"), str):
            raise InvalidInput(f"{file}, line {number} is no row of an earlier run: delete it, or choose another --out")
        rows.append(row)
    return rows


@click.command("rivals")
@click.option("--out", required=True, type=click.Path(path_type=Path, file_okay=False), help="pytorch.jsonl, .md")
@click.option("--most", type=click.IntRange(0), help="New models at most.  [default: all]")
def command(out: Path, most: int | None) -> int:
    """Plan every model that the folder does not know yet, and write the page of all."""
    kept = out / "pytorch.jsonl"
    rows = rows_kept(kept) if kept.is_file() else []
    known = {row["model"] for row in rows}
    out.mkdir(parents=True, exist_ok=True)
    for model in [model for model in (*FORMULAS, *TRACED) if model not in known][:most]:
        new = rows_of(model)
        rows += new
        with kept.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(row, separators=(",", ":")) + "\n" for row in new)
    (out / "pytorch.md").write_text(page(rows), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(run(command, "rivals", sys.argv[1:]))
