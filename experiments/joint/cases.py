"""The cases of the study: a model's whole step on one device of a machine, at a budget between least and everything."""

from dataclasses import dataclass

from msgspec.structs import replace

from experiments.joint.machines import LINKS, machine_of
from experiments.shapes import read_shape
from experiments.stages import Stage
from solvers.ir import JointProblem
from solvers.ir.graph import OpGraph
from solvers.ir.hardware import Hardware
from solvers.joint.instances import at_position
from solvers.joint.make import make_joint_problem
from solvers.workload import Parallelism

VISION = ("resnet-50", "u-net")
"""Measured on the simulated device by shapes; all others are shapes whose costs formulas tell."""
FAMILIES = {
    "llama-2-7b": "Llama", "llama-2-13b": "Llama", "llama-3-8b": "Llama", "mixtral-8x7b": "MoE", "gpt-1.3b": "GPT",
    "gpt-7b": "GPT", "resnet-50": "ResNet", "u-net": "U-Net",
}  # fmt: skip


@dataclass(frozen=True, order=True)
class Case:
    """A model, a machine, a position (0: the least budget of any plan, 1: everything kept), devices that share it."""

    model: str
    hardware: str
    position: float
    tensor: int = 1

    @property
    def name(self) -> str:
        """As the page calls it."""
        return f"{self.model} on {self.hardware} at {self.position:g}" + (f", TP {self.tensor}" * (self.tensor > 1))

    @property
    def link(self) -> str:
        """The machine's link to the host."""
        return LINKS[self.hardware]

    @property
    def family(self) -> str:
        """What the page groups by."""
        return FAMILIES[self.model]

    def problem(self) -> JointProblem:
        """One microbatch of one sample through all layers; vision models: one batch of their own."""
        machine = machine_of(self.hardware, self.tensor)
        problem = at_position(make_joint_problem(self._graph(machine), machine), self.position)
        return replace(problem, name=self.name)

    def _graph(self, machine: Hardware) -> OpGraph:
        if self.model in VISION:
            from experiments.joint.vision import vision_graph

            return vision_graph(self.model, machine)
        cut = Parallelism(
            tensor=self.tensor, pipeline=1, sequence_parallel=self.tensor > 1, microbatch=1, microbatches=1
        )
        return Stage(read_shape(self.model), cut, machine).graph


TIGHT, ROOMY = 0.02, 0.15
FIRST = ("llama-3-8b", "llama-2-7b", "mixtral-8x7b", "gpt-1.3b")
PCIE = ("a100-sxm-80", "rtx-3090", "h200")
_BY_KIND = (
    *(Case(model, machine, at) for at in (TIGHT, ROOMY) for model in FIRST for machine in PCIE),
    *(Case(model, "gh200-4", TIGHT) for model in FIRST),
    *(Case("llama-2-13b", machine, TIGHT) for machine in PCIE),
    *(Case(model, machine, TIGHT, 2) for model in ("llama-3-8b", "mixtral-8x7b") for machine in LINKS),
    *(Case(model, machine, TIGHT, 8) for model in ("llama-3-8b", "llama-2-13b", "mixtral-8x7b") for machine in LINKS),
    *(Case("gpt-7b", machine, TIGHT, 8) for machine in PCIE),
    *(Case(model, machine, at) for model in VISION for at in (TIGHT, ROOMY) for machine in PCIE),
    *(Case(model, "gh200-4", TIGHT) for model in VISION),
)
CASES = tuple(
    case
    for _, case in sorted(
        (position, case)
        for family in dict.fromkeys(FAMILIES.values())
        for position, case in enumerate(case for case in _BY_KIND if case.family == family)
    )
)
"""By name; families take turns, so that a part of them, too, tells of all."""
