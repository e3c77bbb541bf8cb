"""The vocabulary: graphs, hardware, problems, plans, schedules, reports, and the files that hold them."""

from solvers.ir.codec import PlanFile
from solvers.ir.errors import BayplanError, EngineMissing, InvalidInput, InvalidProblem
from solvers.ir.graph import Op, OpGraph, Tensor
from solvers.ir.hardware import Device, Hardware, Link
from solvers.ir.joint import JointOp, JointPlan, JointProblem, JointSwap
from solvers.ir.layout import LayoutBlock, LayoutChunk, LayoutPlan, LayoutProblem
from solvers.ir.partition import PartitionPlan, PartitionProblem
from solvers.ir.pipeline import PipelinePlan, PipelineProblem, PipelineStage, StagePolicies
from solvers.ir.problem import Plan, Problem
from solvers.ir.recompute import (
    LayerGroup,
    LayerOp,
    RecomputeGraphPlan,
    RecomputeGraphProblem,
    RecomputeLayerPlan,
    RecomputeLayerProblem,
    RecomputeOp,
    Window,
)
from solvers.ir.replan import CurrentPipeline, CurrentState, Hosts, NewPipeline, ReplanPlan, ReplanProblem, Transfer
from solvers.ir.report import Report, Row, Span
from solvers.ir.schedule import Action, Schedule, parse_action, parse_schedule
from solvers.ir.solution import Limits, Solution, Solver, Status, Watch
from solvers.ir.swap import Swap, SwapLink, SwapOp, SwapPlan, SwapProblem, SwapTensor

__all__ = [
    "Action",
    "BayplanError",
    "CurrentPipeline",
    "CurrentState",
    "Device",
    "EngineMissing",
    "Hardware",
    "Hosts",
    "InvalidInput",
    "InvalidProblem",
    "JointOp",
    "JointPlan",
    "JointProblem",
    "JointSwap",
    "LayerGroup",
    "LayerOp",
    "LayoutBlock",
    "LayoutChunk",
    "LayoutPlan",
    "LayoutProblem",
    "Limits",
    "Link",
    "NewPipeline",
    "Op",
    "OpGraph",
    "PartitionPlan",
    "PartitionProblem",
    "PipelinePlan",
    "PipelineProblem",
    "PipelineStage",
    "Plan",
    "PlanFile",
    "Problem",
    "RecomputeGraphPlan",
    "RecomputeGraphProblem",
    "RecomputeLayerPlan",
    "RecomputeLayerProblem",
    "RecomputeOp",
    "ReplanPlan",
    "ReplanProblem",
    "Report",
    "Row",
    "Schedule",
    "Solution",
    "Solver",
    "Span",
    "StagePolicies",
    "Status",
    "Swap",
    "SwapLink",
    "SwapOp",
    "SwapPlan",
    "SwapProblem",
    "SwapTensor",
    "Tensor",
    "Transfer",
    "Watch",
    "Window",
    "parse_action",
    "parse_schedule",
]
