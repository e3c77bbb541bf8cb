"""Joint problems of a model's layers by formulas, for tests that need repeated layers."""

from functools import cache

from experiments.hardware import read_hardware
from experiments.shapes import read_shape
from experiments.stages import Stage
from solvers.ir import JointProblem
from solvers.joint.instances import at_position
from solvers.joint.make import make_joint_problem
from solvers.workload import Parallelism


@cache
def layered(position: float, layers: int = 4, hardware: str = "a100-sxm-80") -> JointProblem:
    """Some layers of Llama-2-7B, the budget between the least (0) and everything kept (1)."""
    machine = read_hardware(hardware)
    one = Parallelism(tensor=1, pipeline=1, sequence_parallel=False, microbatch=1, microbatches=1)
    graph = Stage(read_shape("llama-2-7b"), one, machine, 0, layers, True).graph
    return at_position(make_joint_problem(graph, machine), position)
