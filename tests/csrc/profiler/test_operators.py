"""Which calls count as operators: the rule of csrc/profiler/operators.h."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from runtime.profile import profile_step
from runtime.profile.recording import light_recording
from solvers.ir.graph import OTHER_SEQUENCE

x = torch.ones(4, 6)
square = torch.ones(4, 4)


def counted(work: Callable[[], object]) -> list[str]:
    """Names of the counted operators, without the namespace."""
    with light_recording() as recording:
        work()
    return [name.removeprefix("aten::") for name in recording.names()]


@pytest.mark.parametrize(
    "work",
    [
        lambda: x.view(24),
        lambda: x.t(),
        lambda: x.transpose(0, 1).detach().unsqueeze(0).expand(3, 6, 4),
        lambda: x[1:3, ::2],
        lambda: torch.split_with_sizes(x, [1, 3]),
        lambda: x.unbind(),
        lambda: x.chunk(2),
        lambda: x.as_strided((2,), (1,)),
        lambda: x.reshape(24),
        lambda: x.contiguous(),
        lambda: x.to(torch.float32),
        lambda: x.detach().squeeze_(),
        lambda: torch.functional.broadcast_tensors(x, x[0]),  # type: ignore[no-untyped-call]
        lambda: torch.empty(3),
        lambda: torch.empty_like(x),
        lambda: x.new_empty(3),
        lambda: torch.empty_strided((2, 2), (2, 1)),
        lambda: torch.empty(3).resize_(9),
        lambda: x.is_floating_point() and x.size(0) and x.stride() and x.is_contiguous(),
    ],
)
def test_views_allocations_and_questions_do_not_count(work: Callable[[], object]) -> None:
    assert counted(work) == []


@pytest.mark.parametrize(
    ("work", "names"),
    [
        (lambda: x.t().reshape(24), ["clone"]),
        (lambda: x.t().contiguous(), ["clone"]),
        (lambda: x.to(torch.float64), ["_to_copy"]),
        (lambda: x.double().t()[0], ["_to_copy"]),
        (lambda: torch.matmul(x, x.t()), ["matmul"]),
        (lambda: torch.nn.functional.linear(x, x), ["linear"]),
        (lambda: torch.zeros(3), ["zeros"]),
        (lambda: x.sum().item(), ["sum", "item"]),
        (lambda: torch.equal(x, x), ["equal"]),
        (lambda: torch.empty(3).fill_(1), ["fill_.Scalar"]),
        (lambda: torch._foreach_mul_([x.clone()], 1.0), ["clone", "_foreach_mul_.Scalar"]),
        (lambda: x[torch.tensor([0])], ["index.Tensor"]),
        (lambda: torch.add(x, x, out=torch.empty(4, 6)), ["add.out"]),
        (lambda: torch.nn.functional.dropout(x, 0.5), ["dropout"]),
    ],
)
def test_work_counts_once_by_its_outermost_name(work: Callable[[], object], names: list[str]) -> None:
    assert counted(work) == names


def test_backward_counts_each_operator_of_each_node_and_sums_between_nodes() -> None:
    weight = torch.ones(4, 4, requires_grad=True)
    loss = (square @ weight + weight).sum()
    names = counted(loss.backward)
    assert names[0] == "ones_like"
    assert "mm" in names
    assert "add.Tensor" in names or "add_.Tensor" in names  # the weight's two gradients


def test_users_ranges_and_custom_functions_are_transparent() -> None:
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, value: torch.Tensor) -> torch.Tensor:
            return value * 2

        @staticmethod
        def backward(ctx: object, *gradients: torch.Tensor) -> torch.Tensor:
            return gradients[0] * 2

    def work() -> None:
        with torch.profiler.record_function("mine"):
            Twice.apply(torch.ones(2, requires_grad=True)).sum().backward()  # type: ignore[no-untyped-call]

    assert counted(work) == ["ones", "mul.Tensor", "sum", "ones_like", "mul.Tensor"]


def test_an_operator_of_a_library_counts_and_hides_what_it_calls() -> None:
    library: Any = torch.library.Library("bayplan_test", "DEF")  # type: ignore[no-untyped-call]
    library.define("twice(Tensor x) -> Tensor")
    library.define("look(Tensor(a) x) -> Tensor(a)")
    library.impl("twice", lambda value: value + value, "CompositeExplicitAutograd")
    library.impl("look", lambda value: value.view(-1), "CompositeExplicitAutograd")
    assert counted(lambda: torch.ops.bayplan_test.look(torch.ops.bayplan_test.twice(x))) == ["bayplan_test::twice"]
    library._destroy()


def test_an_operator_that_fails_is_counted_and_the_next_one_is_outermost_again() -> None:
    def work() -> None:
        with pytest.raises(RuntimeError):
            torch.mm(x, x)
        x.add(1)

    assert counted(work) == ["mm", "add.Tensor"]


def test_ids_are_the_same_from_one_recording_to_the_next() -> None:
    with light_recording() as first:
        (x + 1).mul(2).sum()
    with light_recording() as second:
        (x + 1).mul(2).sum()
    assert first.ids == second.ids
    assert len(first.ids) == 3


def test_what_works_on_jagged_tensors_counts_by_its_parts() -> None:
    """Where the recorder asks for inputs: the same operators, and the same storages, as on what they hold."""
    rows = torch.nested.nested_tensor([torch.ones(length, 6) for length in (2, 3)], layout=torch.jagged)
    layer = torch.nn.Linear(6, 4)

    def names(batch: torch.Tensor, *, inputs: bool) -> list[str]:
        with light_recording(inputs=inputs) as recording:
            torch.relu(layer(batch))
        return list(recording.names())

    assert names(rows, inputs=True) == names(rows.values(), inputs=True) == ["aten::linear", "aten::relu"]
    graph = profile_step(lambda: torch.relu(layer(rows)), "cpu", warmup=2)
    assert [op.name for op in graph.ops] == ["aten::linear", "aten::relu"]
    assert graph.ops[0].outputs == graph.ops[1].inputs != () and OTHER_SEQUENCE not in graph.source
