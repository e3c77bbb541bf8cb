"""Every kind of problem in one row: its types, and who makes, lowers, simulates and judges it.

A row holds import paths `module:attribute`, and this file imports nothing: whoever asks for an entry loads it then, so
`solvers.ir` may look its types up here without importing a room, and a room's solvers never load their judge.
A new kind is its folder and one row. On the command line it may have a file `experiments/commands/kinds/<kind>.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of problem; what it does not have is None.

    - `problem`, `plan`: the types of its problems and decisions (`solvers.ir.problem`).
    - `judge`: a `solvers.check.judge.Judge` that knows the kind's meaning from its definition alone.
    - `certificates`: form → function that adds a certificate of that form up again: faults, and the bound in µs.
    - `budget`: the problem's field or property that is its memory budget in bytes (of several, the smallest).
    - `make`: (graph, hardware, budget in bytes or None) → problem.
    - `lower`: (problem, plan) → schedule.
    - `judge_schedule`: (problem, schedule) → verdict. `timeline`: (problem, schedule) → report.
    - `simulate`: (problem, plan) → report, where a plan tells more than its schedule or has none.
    """

    problem: str
    plan: str
    judge: str
    certificates: Mapping[str, str] = field(default_factory=dict)
    budget: str | None = None
    make: str | None = None
    lower: str | None = None
    judge_schedule: str | None = None
    timeline: str | None = None
    simulate: str | None = None


KINDS: dict[str, Kind] = {
    "swap": Kind(
        problem="solvers.ir.swap:SwapProblem",
        plan="solvers.ir.swap:SwapPlan",
        judge="solvers.check.swap:JUDGE",
        budget="budget_bytes",
        make="solvers.swap.make:make_swap_problem",
        lower="solvers.swap.lower:lower",
        judge_schedule="solvers.check.swap.schedule:judge_swap_schedule",
        timeline="solvers.timeline.swap:simulate_swap",
    ),
    "recompute-graph": Kind(
        problem="solvers.ir.recompute:RecomputeGraphProblem",
        plan="solvers.ir.recompute:RecomputeGraphPlan",
        judge="solvers.check.recompute_graph:JUDGE",
        certificates={"cut-relaxation/1": "solvers.check.recompute_graph.bound:add_up"},
        budget="budget_bytes",
        make="solvers.recompute.graph.make:make_graph_problem",
        lower="solvers.recompute.graph.lower:lower",
        judge_schedule="solvers.check.recompute_graph.schedule:judge_recompute_schedule",
        timeline="solvers.timeline.recompute:simulate_recompute",
    ),
    "recompute-layer": Kind(
        problem="solvers.ir.recompute:RecomputeLayerProblem",
        plan="solvers.ir.recompute:RecomputeLayerPlan",
        judge="solvers.check.recompute_layer:JUDGE",
        budget="budget_bytes",
        make="solvers.recompute.layer.measured:make_layer_problem",
    ),
    "partition": Kind(
        problem="solvers.ir.partition:PartitionProblem",
        plan="solvers.ir.partition:PartitionPlan",
        judge="solvers.check.partition:JUDGE",
    ),
    "pipeline": Kind(
        problem="solvers.ir.pipeline:PipelineProblem",
        plan="solvers.ir.pipeline:PipelinePlan",
        judge="solvers.check.pipeline:JUDGE",
        budget="budget_bytes",
        make="solvers.partition.make:make_pipeline_problem",
        lower="solvers.partition.lower:lower",
        judge_schedule="solvers.check.pipeline.schedule:judge_pipeline_schedule",
        timeline="solvers.timeline.pipeline.simulated:simulate_pipeline",
    ),
    "replan": Kind(
        problem="solvers.ir.replan:ReplanProblem",
        plan="solvers.ir.replan:ReplanPlan",
        judge="solvers.check.replan:JUDGE",
        lower="solvers.replan.transfer.lower:lower",
        simulate="solvers.replan.timeline:step_report",
    ),
    "layout": Kind(
        problem="solvers.ir.layout:LayoutProblem",
        plan="solvers.ir.layout:LayoutPlan",
        judge="solvers.check.layout:JUDGE",
        certificates={
            "floor/1": "solvers.check.layout.bound:add_up_floor",
            "every-decision/1": "solvers.check.layout.bound:add_up_decisions",
            "least-memory/1": "solvers.check.layout.bound:add_up_least_memory",
            "layout-tree/1": "solvers.check.layout.bound:add_up_tree",
        },
        budget="device_bytes",
        make="solvers.layout.measured:make_layout_problem",
        lower="solvers.layout.lower:lower",
        judge_schedule="solvers.check.layout.schedule:judge_layout_schedule",
        timeline="solvers.timeline.layout:simulate_layout",
    ),
    "joint": Kind(
        problem="solvers.ir.joint:JointProblem",
        plan="solvers.ir.joint:JointPlan",
        judge="solvers.check.joint:JUDGE",
        certificates={
            "moment/2": "solvers.check.joint.bound:add_up",
            "moment/3": "solvers.check.joint.counted:add_up",
            "stretches/1": "solvers.check.joint.stretches:add_up",
        },
        budget="budget_bytes",
        make="solvers.joint.make:make_joint_problem",
        lower="solvers.joint.lower:lower",
        judge_schedule="solvers.check.joint.schedule:judge_joint_schedule",
        timeline="solvers.timeline.joint:simulate_joint",
        simulate="solvers.joint.report:plan_report",
    ),
}


def load(target: str) -> Any:
    """The attribute behind an import path `module:attribute`; this imports the module."""
    module, _, attribute = target.partition(":")
    return getattr(import_module(module), attribute)


def kinds_with(entry: str) -> list[str]:
    """The kinds whose row has that entry, sorted by name."""
    return sorted(name for name, kind in KINDS.items() if getattr(kind, entry) is not None)
