"""From graphs to problems: versions of what is written in place, fused writes, saved parts, static memory."""

import math

import torch
from torch import nn

from runtime.profile import profile_step
from solvers.check.recompute_graph.judge import judge_recompute_graph
from solvers.ir import Limits, Op, OpGraph, Tensor
from solvers.ir.graph import Phase
from solvers.recompute.graph.instances import at_position, peak_bytes
from solvers.recompute.graph.make import graph_problem
from solvers.recompute.graph.milp import OptMilp
from solvers.recompute.graph.replay import instance, plan_from_recomputations


def op(phase: Phase, time_us: int, inputs: tuple[str, ...], outputs: tuple[str, ...], comm: bool = False) -> Op:
    kind = "comm" if comm else "compute"
    return Op(name="f", phase=phase, time_us=time_us, inputs=inputs, outputs=outputs, kind=kind)  # type: ignore[arg-type]


def graph(ops: tuple[Op, ...], sizes: dict[str, int], kinds: dict[str, str] | None = None) -> OpGraph:
    """Tensors are born where they are first an output; w and x were there before."""
    born = {name: next(n for n, o in enumerate(ops) if name in o.outputs) for name in sizes if name not in ("w", "x")}
    tensors = tuple(
        Tensor(
            id=name,
            bytes=size,
            born=born.get(name),
            uses=tuple(n for n, o in enumerate(ops) if name in (*o.inputs, *o.outputs)),
            kind=(kinds or {}).get(name, "activation"),  # type: ignore[arg-type]
        )
        for name, size in sizes.items()
    )
    return OpGraph(name="g", ops=ops, tensors=tensors, memory_bytes=(0,) * len(ops))


def test_operators_read_operators_and_parameters_are_static() -> None:
    """y = f(w, x); z = f(y); loss; backward reads y and makes a gradient of w, which is static."""
    steps = (
        op("forward", 4, ("w", "x"), ("y",)),
        op("forward", 3, ("y",), ("z",), comm=True),
        op("backward", 2, ("z", "y"), ("gy",)),
        op("backward", 5, ("gy", "x", "w"), ("gw",)),
    )
    sizes = {"w": 100, "x": 10, "y": 7, "z": 5, "gy": 6, "gw": 100}
    problem = graph_problem(graph(steps, sizes, {"w": "parameter", "gw": "gradient"}), 1000)
    assert problem.static_bytes == 210
    assert [(o.time_us, o.output_bytes, o.inputs, o.comm) for o in problem.ops] == [
        (4, 7, (), False),
        (3, 5, (0,), True),
        (2, 6, (0, 1), False),
        (5, 0, (2,), False),
    ]


def test_a_higher_measured_peak_makes_static_memory() -> None:
    steps = (op("forward", 1, ("x",), ("y",)), op("forward", 1, ("y",), ("z",)))
    plain = graph(steps, {"x": 10, "y": 7, "z": 5})
    assert graph_problem(plain, 50).static_bytes == 10  # and y and z beside it: 22
    measured = OpGraph(name="g", ops=plain.ops, tensors=plain.tensors, memory_bytes=(17, 25))
    problem = graph_problem(measured, 50)
    assert (problem.static_bytes, peak_bytes(problem)) == (13, 25)
    assert graph_problem(measured, 50, static_bytes=4).static_bytes == 4


def test_a_write_in_place_is_fused_where_nothing_else_reads_the_old_version() -> None:
    """relu_ joins the product that it overwrites: one op of 7 us, 8 bytes; the reader reads both as one."""
    steps = (
        op("forward", 5, ("x",), ("y",)),
        op("forward", 1, ("x",), ("u",)),
        op("forward", 2, ("y",), ("y",)),
        op("forward", 3, ("y", "u"), ("z",)),
    )
    problem = graph_problem(graph(steps, {"x": 1, "y": 8, "u": 2, "z": 4}), 100)
    assert [(o.name, o.time_us, o.output_bytes, o.inputs) for o in problem.ops] == [
        ("f + f", 7, 8, ()),
        ("f", 1, 2, ()),
        ("f", 3, 4, (0, 1)),
    ]


def test_a_write_in_place_makes_a_version_where_the_old_one_is_read_or_the_writer_reads_newer() -> None:
    """An accumulation y += u, u newer than y: its own op, reading both; later readers read the sum."""
    steps = (
        op("backward", 5, ("x",), ("y",)),
        op("backward", 1, ("x",), ("u",)),
        op("backward", 2, ("y", "u"), ("y",)),
        op("backward", 3, ("y",), ("z",)),
    )
    problem = graph_problem(graph(steps, {"x": 1, "y": 8, "u": 2, "z": 4}), 100)
    assert [(o.output_bytes, o.inputs) for o in problem.ops] == [(8, ()), (2, ()), (8, (0, 1)), (4, (2,))]
    read_before = (
        op("forward", 5, ("x",), ("y",)),
        op("forward", 1, ("y",), ("u",)),
        op("forward", 2, ("y",), ("y",)),
        op("forward", 3, ("y", "u"), ("z",)),
    )
    problem = graph_problem(graph(read_before, {"x": 1, "y": 8, "u": 2, "z": 4}), 100)
    assert [o.inputs for o in problem.ops] == [(), (0,), (0,), (1, 2)]


def test_a_dropout_is_two_ops_as_only_its_mask_is_read_later() -> None:
    """10 us and 8 + 2 bytes: 8 us for the result, 2 us for the mask; backward reads the mask's op only."""
    steps = (
        op("forward", 4, ("x",), ("y",)),
        op("forward", 10, ("y",), ("d", "m")),
        op("forward", 3, ("d",), ("z",)),
        op("backward", 2, ("z", "m"), ("g",)),
    )
    problem = graph_problem(graph(steps, {"x": 1, "y": 8, "d": 8, "m": 2, "z": 8, "g": 8}), 100)
    assert [(o.name, o.time_us, o.output_bytes, o.inputs) for o in problem.ops] == [
        ("f", 4, 8, ()),
        ("f", 8, 8, (0,)),
        ("f (saved)", 2, 2, (0,)),
        ("f", 3, 8, (1,)),
        ("f", 2, 8, (2, 3)),
    ]


def test_a_profile_of_a_real_step_becomes_a_problem_that_is_solved_and_judged() -> None:
    """Static memory holds parameters, gradients, momenta and the batch; at half way it takes recomputation."""
    torch.manual_seed(0)
    blocks = [nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Dropout(0.1), nn.Linear(64, 32)) for _ in range(3)]
    model = nn.Sequential(*blocks)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    batch = torch.randn(256, 32)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss: torch.Tensor = model(batch).square().mean()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return loss

    profile = profile_step(step, "cpu", model=model, optimizer=optimizer)
    problem = graph_problem(profile, 0)
    parameters = sum(parameter.numel() * 4 for parameter in model.parameters())
    assert problem.static_bytes >= 3 * parameters + batch.numel() * 4
    assert sum(o.time_us for o in problem.ops) == sum(o.time_us for o in profile.ops)
    assert peak_bytes(problem) >= max(profile.memory_bytes)
    everything = plan_from_recomputations(problem, [()] * len(problem.ops))
    assert judge_recompute_graph(at_position(problem, 1.0), everything).clean
    tight = at_position(problem, 0.5)
    solution = OptMilp().solve(tight, Limits(time_s=math.inf, work=1))
    assert solution.plan is not None and solution.objective is not None
    assert judge_recompute_graph(tight, solution.plan).objective_us == solution.objective
    assert solution.objective > instance(problem).base
