"""From a graph and a hardware file to a joint problem: the ops as recomputation sees them, and the host link."""

from msgspec.structs import asdict

from solvers.ir.graph import OpGraph
from solvers.ir.hardware import HOST, Hardware
from solvers.ir.joint import JointOp, JointProblem
from solvers.recompute.graph.make import make_graph_problem
from solvers.swap.make import swap_link


def make_joint_problem(graph: OpGraph, hardware: Hardware, budget_bytes: int | None = None) -> JointProblem:
    """The problem of a step on the first device of a machine; its memory is the budget unless one is given.

    Ops are those of `solvers.recompute.graph.make`, with its approximations. The link is the pair of directions between
    the first device and the host; communication shares it where the hardware says that the links share a rate.
    """
    problem = make_graph_problem(graph, hardware, budget_bytes)
    return JointProblem(
        name=problem.name,
        budget_bytes=problem.budget_bytes,
        static_bytes=problem.static_bytes,
        replays_from=problem.replays_from,
        ops=tuple(JointOp(**asdict(op)) for op in problem.ops),
        link=swap_link(hardware),
        comm_shares_link=_shares(hardware),
    )


def _shares(hardware: Hardware) -> bool:
    """Whether the host link of the first device and another of its links are of one bundle."""
    name = hardware.device().name
    own = hardware.link(name, HOST).shares
    others = [link for link in hardware.links if name in (link.a, link.b) and HOST not in (link.a, link.b)]
    return own is not None and any(link.shares == own for link in others)
