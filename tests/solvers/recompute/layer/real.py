"""Layers of real shapes on the paper's clusters, as problems with budgets between the least and the ample one."""

from pathlib import Path

from msgspec.structs import replace

from solvers.ir import Hardware, Limits, RecomputeLayerProblem
from solvers.ir.codec import read_document
from solvers.recompute.layer import Heu, layer_problem
from solvers.workload import LayerCosts, ModelShape, Parallelism, megatron_layer

CONF = Path(__file__).parents[4] / "conf"
SHAPES = (
    ("gpt-1.3b", 2, 8, "lynx-pcie"),
    ("gpt-4.7b", 2, 8, "lynx-pcie"),
    ("gpt-7b", 4, 16, "lynx-nvlink"),
    ("gpt-13b", 8, 8, "lynx-ascend"),
    ("gpt-20b", 4, 4, "lynx-nvlink"),
    ("gpt-23b", 4, 4, "lynx-nvlink"),
    ("gpt-175b", 4, 1, "lynx-nvlink"),
    ("llama-2-70b", 4, 4, "lynx-nvlink"),
    ("llama-3-8b", 4, 4, "lynx-nvlink"),
    ("mixtral-8x7b", 4, 4, "lynx-nvlink"),
)


def costs(shape: str, tensor: int, microbatch: int, cluster: str, group_small: bool = True) -> LayerCosts:
    model = read_document(CONF / f"model/shapes/{shape}.json", ModelShape)
    hardware = read_document(CONF / f"hardware/{cluster}.json", Hardware)
    parallelism = Parallelism(tensor=tensor, pipeline=4, microbatch=microbatch, microbatches=8)
    return megatron_layer(model, parallelism, hardware, group_small=group_small)


def stage(layer: LayerCosts, layers: int, inflight: int, position: float, stall_us: int = 0) -> RecomputeLayerProblem:
    """A stage whose budget lies at `position` between the least (0) and what keeping everything needs (1)."""
    problem = layer_problem(
        layer,
        layers=layers,
        inflight_microbatches=inflight,
        last_stage=inflight == 1,
        budget_bytes=0,
        static_bytes=0,
        stall_us=stall_us,
    )
    least = Heu().solve(problem, Limits()).least_budget_bytes
    assert least is not None
    return replace(problem, budget_bytes=least + int(position * (layers * inflight * layer.kept_bytes - least)))
