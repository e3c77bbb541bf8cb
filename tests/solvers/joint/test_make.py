"""Joint problems from a graph: the ops of recomputation, the link of swapping, and whether they share it."""

from msgspec.structs import replace

from experiments.hardware import read_hardware
from experiments.shapes import read_shape
from experiments.stages import Stage
from solvers.joint.instances import at_position, peak_bytes
from solvers.joint.make import make_joint_problem
from solvers.recompute.graph.make import make_graph_problem
from solvers.swap.make import swap_link
from solvers.workload import Parallelism


def test_ops_are_those_of_recomputation_and_the_link_that_of_swapping() -> None:
    machine = read_hardware("a100-sxm-80")
    one = Parallelism(tensor=1, pipeline=1, sequence_parallel=False, microbatch=1, microbatches=1)
    graph = Stage(read_shape("llama-2-7b"), one, machine, 0, 2, True).graph
    problem, other = make_joint_problem(graph, machine, 10**9), make_graph_problem(graph, machine, 10**9)
    assert (problem.budget_bytes, problem.static_bytes) == (other.budget_bytes, other.static_bytes)
    assert [(op.name, op.time_us, op.output_bytes, op.inputs) for op in problem.ops] == [
        (op.name, op.time_us, op.output_bytes, op.inputs) for op in other.ops
    ]
    assert problem.link == swap_link(machine) and not problem.comm_shares_link
    assert make_joint_problem(graph, machine).budget_bytes == machine.devices[0].memory_bytes
    assert at_position(problem, 1.0).budget_bytes == peak_bytes(problem)


def test_a_bundle_of_the_host_link_and_another_is_shared() -> None:
    machine = read_hardware("protrain-a100")
    links = (replace(link, shares="pcie" if "n0.d0" in (link.a, link.b) else None) for link in machine.links)
    bundled = replace(machine, links=tuple(links))
    one = Parallelism(tensor=1, pipeline=1, sequence_parallel=False, microbatch=1, microbatches=1)
    graph = Stage(read_shape("llama-2-7b"), one, machine, 0, 1, True).graph
    assert make_joint_problem(graph, bundled).comm_shares_link
    assert not make_joint_problem(graph, machine).comm_shares_link
