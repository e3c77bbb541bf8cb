"""The cases of the study: a model's whole step on one device of a machine, at a budget between least and everything."""

from dataclasses import dataclass

import msgspec

from experiments.hardware import read_hardware
from experiments.shapes import read_shape
from experiments.stages import Stage
from solvers.ir import JointProblem
from solvers.joint.instances import at_position
from solvers.joint.make import make_joint_problem
from solvers.workload import Parallelism

LINKS = {"rtx-3090": "PCIe 3", "a100-sxm-80": "PCIe 4", "h200": "PCIe 5", "gh200-4": "NVLink-C2C"}
"""The host link of each machine."""


@dataclass(frozen=True)
class Case:
    """A shape, a machine, a position (0: the least budget of any plan, 1: everything kept), devices that share it."""

    shape: str
    hardware: str
    position: float
    tensor: int = 1

    @property
    def name(self) -> str:
        """As the page calls it."""
        return f"{self.shape} on {self.hardware} at {self.position:g}" + (f", TP {self.tensor}" * (self.tensor > 1))

    def problem(self) -> JointProblem:
        """One microbatch of one sample through all layers: times by formulas and a roofline, nothing measured."""
        machine = read_hardware(self.hardware)
        cut = Parallelism(
            tensor=self.tensor, pipeline=1, sequence_parallel=self.tensor > 1, microbatch=1, microbatches=1
        )
        graph = Stage(read_shape(self.shape), cut, machine).graph
        problem = at_position(make_joint_problem(graph, machine), self.position)
        return msgspec.structs.replace(problem, name=self.name)


SHAPES = ("llama-3-8b", "llama-2-7b", "mixtral-8x7b", "gpt-1.3b")
POSITIONS = (0.02, 0.15)
MACHINES = ("a100-sxm-80", "rtx-3090", "h200")
CASES = (
    *(Case(shape, machine, at) for at in POSITIONS for shape in SHAPES for machine in MACHINES),
    Case("llama-3-8b", "gh200-4", 0.02),
    Case("mixtral-8x7b", "gh200-4", 0.02),
)
"""26 cases; the tight budgets first."""
