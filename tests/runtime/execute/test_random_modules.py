"""Any module, any budget, any plan, right or wrong: the bits of plain training, or an error in a sentence."""

from collections.abc import Callable
from typing import Literal

import msgspec
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from runtime.device import use_sim
from runtime.swap import SwapExecutor
from solvers.ir.errors import InvalidProblem
from solvers.ir.graph import OpGraph
from solvers.ir.schedule import Schedule
from solvers.ir.solution import Limits
from solvers.swap import GreedySwap
from solvers.swap.lower import lower
from solvers.swap.make import make_swap_problem
from tests.runtime.execute.training import Move, Trainee, graph_of, plainly, schedule_of, train

WIDTH = 16
Part = Literal[
    "linear", "norm", "gelu", "relu_", "dropout", "residual", "gather", "strided", "lookup", "scale_", "stack"
]
PARTS: tuple[Part, ...] = Part.__args__  # type: ignore[attr-defined]


class Drawn(nn.Module):
    """Layers drawn by hypothesis, on rows of width 16; `residual` adds what the part before last gave."""

    def __init__(self, parts: list[Part]) -> None:
        super().__init__()
        self.parts = parts
        self.table = nn.Embedding(32, WIDTH)
        self.linears = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for part in parts if part == "linear")
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits that share the table's weight."""
        linears = iter(self.linears)
        before = hidden = self.table(tokens)
        for part in self.parts:
            before, hidden = hidden, self.apply_part(part, before, hidden, tokens, linears)
        return functional.linear(hidden, self.table.weight)

    def apply_part(
        self, part: Part, before: torch.Tensor, hidden: torch.Tensor, tokens: torch.Tensor, linears: object
    ) -> torch.Tensor:
        """One layer; in-place ones write to a fresh tensor, as autograd demands."""
        table: dict[Part, Callable[[], torch.Tensor]] = {
            "linear": lambda: next(linears)(hidden),  # type: ignore[call-overload]
            "norm": lambda: self.norm(hidden),
            "gelu": lambda: functional.gelu(hidden),
            "relu_": lambda: functional.relu(hidden * 1.5, inplace=True),
            "dropout": lambda: functional.dropout(hidden, 0.2, self.training),
            "residual": lambda: hidden + before,
            "gather": lambda: hidden[tokens % hidden.shape[0]],
            "strided": lambda: (hidden.t()[::2].reshape(-1, WIDTH // 2).repeat(1, 2))[: hidden.shape[0]] + hidden,
            "lookup": lambda: hidden + self.table(tokens.flip(0)),
            "scale_": lambda: (hidden + 0.5).mul_(0.5),
            "stack": lambda: torch.stack([hidden, before], 1).sum(1),
        }
        return table[part]()


def maker(parts: list[Part], rows: int, checked: bool) -> Callable[[torch.device], Trainee]:
    def make(device: torch.device) -> Trainee:
        torch.manual_seed(7)
        model = Drawn(parts).to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=len(parts) % 2 == 0)
        tokens = torch.randint(32, (rows,)).to(device)

        def step() -> torch.Tensor:
            optimizer.zero_grad(set_to_none=True)
            loss = functional.cross_entropy(model(tokens), tokens)
            loss.backward()  # type: ignore[no-untyped-call]
            if checked:
                nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            return loss.detach()

        return Trainee(model, optimizer, step)

    return make


@st.composite
def moves_on(draw: st.DrawFn, graph: OpGraph) -> list[Move]:
    """Any tensors, out after any op that touches them, released and back anywhere later."""
    count = len(graph.ops)
    moves = []
    for tensor in draw(st.lists(st.sampled_from(graph.tensors), unique_by=lambda tensor: tensor.id, max_size=12)):
        touching = [use for use in tensor.uses if use + 1 < count]
        if touching:
            out = draw(st.sampled_from(touching))
            release = draw(st.integers(out + 1, count - 1))
            moves.append(Move(tensor.id, out, release, draw(st.integers(release, count - 1))))
    return moves


def solved(graph: OpGraph, fraction: float) -> Schedule | None:
    problem = make_swap_problem(
        graph, use_sim().hardware, int(fraction * max(graph.memory_bytes)), least_tensor_bytes=1
    )
    plan = GreedySwap().solve(problem, Limits()).plan
    return None if plan is None else lower(problem, plan)


def spoiled(draw: st.DrawFn, graph: OpGraph) -> OpGraph:
    """The graph with one fault that makes plans wrong: a name, a size, or an op's arguments."""
    fault = draw(st.sampled_from(["name", "bytes", "arguments"]))
    if fault == "bytes":
        victim = draw(st.sampled_from(graph.tensors)).id
        return msgspec.structs.replace(
            graph,
            tensors=tuple(
                msgspec.structs.replace(t, bytes=t.bytes + 4) if t.id == victim else t for t in graph.tensors
            ),
        )
    place = draw(st.integers(0, len(graph.ops) - 1))
    op = graph.ops[place]
    op = (
        msgspec.structs.replace(op, name="aten::nothing")
        if fault == "name"
        else msgspec.structs.replace(op, inputs=op.inputs[::-1], outputs=op.outputs[::-1])
    )
    return msgspec.structs.replace(graph, ops=(*graph.ops[:place], op, *graph.ops[place + 1 :]))


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data(), parts=st.lists(st.sampled_from(PARTS), min_size=2, max_size=9), rows=st.integers(3, 20))
def test_the_bits_of_plain_training_or_an_error(
    device: torch.device, data: st.DataObject, parts: list[Part], rows: int
) -> None:
    use_sim(races="raise")
    make = maker(parts, rows, checked=data.draw(st.booleans()))
    graph = graph_of(make, device)
    seen = graph if data.draw(st.booleans()) else data.draw(st.composite(spoiled)(graph))
    try:
        schedule = (
            solved(seen, data.draw(st.floats(0.7, 1.0)))
            if data.draw(st.booleans())
            else schedule_of(seen, data.draw(moves_on(seen)))
        )
        if schedule is None:
            return
        executor = SwapExecutor(schedule, seen, device)
    except InvalidProblem as refused:
        assert seen is not graph or "does not touch" in str(refused)
        return

    def run(trainee: Trainee) -> torch.Tensor:
        executed = executor.run(trainee.step)
        assert executed.counts.left_out == 0
        return executed.value

    assert train(make, device, run).equals(train(make, device, plainly))
