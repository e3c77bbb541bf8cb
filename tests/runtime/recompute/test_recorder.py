"""Where the recorder stands in PyTorch: what reaches it, what passes it by, and that nothing of it stays behind."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._higher_order_ops.wrap import wrap

from runtime.device.native import core
from runtime.recompute.tape import EVERYTHING, NOTHING, record
from tests.runtime.recompute.regions import backward, gradient, same

pytestmark = pytest.mark.usefixtures("plain_sim")
CPU = torch.device("cpu")
KEY = "TESTING_ONLY_GenericMode"


def names(tape: core.Tape) -> list[str]:
    """The operators that a tape recorded."""
    return [node.name for node in tape.nodes]


def is_recording() -> bool:
    """Whether the dispatcher calls the recorder on this thread."""
    return torch._C._dispatch_tls_is_dispatch_key_included(KEY)


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    """After each test the dispatcher is as it was, and autograd saves tensors by itself."""
    yield
    core.stop_recording()
    assert not is_recording()
    node: Any = torch.ones(2, requires_grad=True).exp().grad_fn
    assert node._raw_saved_result is not None
    assert torch._C._autograd._top_saved_tensors_default_hooks(True) is None


def test_a_region_that_raises_leaves_the_dispatcher_as_it_was() -> None:
    with pytest.raises(ZeroDivisionError), record(CPU, NOTHING):
        assert is_recording()
        raise ZeroDivisionError
    assert not is_recording()


def test_views_and_composite_operators_pass_by_and_what_they_call_does_not() -> None:
    x, weight = torch.randn(2, 3, 4, requires_grad=True), torch.randn(5, 4)
    with record(CPU, EVERYTHING) as tape:
        torch.nn.functional.linear(x.transpose(0, 1), weight).reshape(-1).view(3, 10).t()
    assert "aten::linear" not in names(tape)
    assert not {name for name in names(tape) if "view" in name or "transpose" in name or name == "aten::t"}
    assert "aten::bmm" in names(tape)


def test_whatever_passes_by_makes_no_data_by_itself() -> None:
    """By the dispatcher's own tables: it makes views, asks questions, or is derived from what it calls."""
    with record(CPU, EVERYTHING):
        pass
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    passing = [
        name
        for name in torch._C._dispatch_get_all_op_names()
        if has(name, KEY) and torch._C._dispatch_kernel_for_dispatch_key_is_fallthrough(name, KEY)
    ]
    assert {"aten::view", "aten::dropout", "aten::t", "aten::reshape"} <= set(passing)
    assert not {"aten::mm", "aten::add.Tensor", "aten::empty.memory_format", "aten::copy_"} & set(passing)
    others = []
    for name in passing:
        schema = torch._C._get_schema(*name.partition(".")[::2])
        composite = has(name, "CompositeImplicitAutograd") and not has(name, "Autograd")
        views = all(one.alias_info is not None for one in schema.returns)
        if not composite and not views and any("Tensor" in str(one.type) for one in schema.returns):
            others.append(name)
    # Views that PyTorch does not call so, and a zero without memory: as the profiler counts operators.
    assert sorted(others) == [
        "aten::_efficientzerotensor",
        "aten::_unsafe_view",
        "aten::lift",
        "aten::unsafe_split.Tensor",
        "aten::unsafe_split_with_sizes",
    ]


def test_an_operator_that_throws_is_no_node_and_the_next_one_is() -> None:
    x = torch.randn(4, requires_grad=True)
    with record(CPU, NOTHING) as tape:
        y = x.exp()
        with pytest.raises(RuntimeError):
            y.mm(y)
        z = y.sin()
    assert names(tape) == ["aten::exp", "aten::sin"]
    backward(z.sum())
    assert same(torch.autograd.grad(x.exp().sin().sum(), x)[0], gradient(x))


def test_operators_are_recorded_while_observers_are_off() -> None:
    x = torch.randn(4, requires_grad=True)
    with record(CPU, NOTHING) as tape:
        torch._C._autograd._enable_record_function(False)
        try:
            x.exp().sin()
        finally:
            torch._C._autograd._enable_record_function(True)
    assert names(tape) == ["aten::exp", "aten::sin"]


def test_operators_of_higher_order_run_in_a_region() -> None:
    """Python dispatches them by the thread's keys; what they call is recorded."""
    x = torch.randn(4, requires_grad=True)
    with record(CPU, NOTHING) as tape:
        y = wrap(lambda z: z.exp().sin(), x)
    assert names(tape) == ["aten::exp", "aten::sin"]
    backward(y.sum())
    assert same(torch.autograd.grad(x.exp().sin().sum(), x)[0], gradient(x))


def test_hooks_of_the_program_inside_a_region_come_first() -> None:
    x, seen = torch.randn(4, requires_grad=True), []

    def packed(tensor: Tensor) -> Tensor:
        seen.append(tensor.shape)
        return tensor

    with record(CPU, NOTHING):
        y = x.exp()
        with torch.autograd.graph.saved_tensors_hooks(packed, lambda tensor: tensor):
            z = y.sin()
        w = z.exp()
    assert seen == [y.shape]
    backward(w.sum())
    assert same(torch.autograd.grad(x.exp().sin().exp().sum(), x)[0], gradient(x))


def test_another_thread_does_not_notice_a_recording() -> None:
    """The engine that stands before PyTorch's while this thread records serves the others as PyTorch's own."""
    x = torch.randn(4, requires_grad=True)
    found: list[Tensor | bool] = []

    def train() -> None:
        theirs = x.detach().requires_grad_()
        y = theirs.exp().sin()
        found.append(is_recording())
        backward(y.sum())
        found.append(gradient(theirs))

    with record(CPU, NOTHING) as tape:
        x.exp()
        other = threading.Thread(target=train)
        other.start()
        other.join()
    assert names(tape) == ["aten::exp"]
    assert found[0] is False
    assert isinstance(found[1], Tensor)
    assert same(torch.autograd.grad(x.exp().sin().sum(), x)[0], found[1])


def test_anomaly_mode_tells_where_a_bad_gradient_was_made() -> None:
    x = torch.zeros(2, requires_grad=True)
    with (
        torch.autograd.set_detect_anomaly(True),
        pytest.warns(UserWarning, match="Traceback of forward call"),
        pytest.raises(RuntimeError, match="SqrtBackward0' returned nan"),
    ):
        with record(CPU, NOTHING):
            y = x.sqrt() * 0
        backward(y.sum())


def test_a_backward_pass_inside_a_region() -> None:
    """A region may train: what its backward pass computes is recorded with the rest, and equal."""
    torch.manual_seed(0)
    module, x = nn.Linear(4, 4), torch.randn(2, 4)
    expected = torch.autograd.grad(module(x).sin().sum(), list(module.parameters()))
    with record(CPU, NOTHING):
        found = torch.autograd.grad(module(x).sin().sum(), list(module.parameters()))
    assert all(same(*pair) for pair in zip(expected, found, strict=True))


RUNS_AGAIN, IN_KERNEL, GO_ON = threading.Event(), threading.Event(), threading.Event()


@torch.library.custom_op("bayplan_tests::sine_in_python", mutates_args=())
def sine_in_python(x: Tensor) -> Tensor:
    """The sine; when it runs again, it says so, and leaves Python's lock to others for a while."""
    if RUNS_AGAIN.is_set():
        IN_KERNEL.set()
        GO_ON.wait(60)
        time.sleep(0.05)
    return torch.sin(x)


def sine_backward(ctx: Any, grad: Tensor) -> Tensor:
    """Asks for what the operator was given."""
    derived: Tensor = grad * ctx.saved_tensors[0].cos()
    return derived


def save_input(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
    """Of the operator's autograd."""
    ctx.save_for_backward(*inputs)


def test_a_kernel_in_python_runs_again_while_its_tape_is_asked_and_a_graph_goes() -> None:
    """Who asks a busy tape lets go of Python's lock, which the kernel needs; who lets go of a graph does not wait."""
    sine_in_python.register_autograd(sine_backward, setup_context=save_input)
    x = torch.randn(8, requires_grad=True)
    with record(CPU, NOTHING) as tape:
        made = sine_in_python(x.exp())
        first, second = made.square().sum(), made.cos().sum()
    del made
    RUNS_AGAIN.set()
    other = threading.Thread(target=first.backward, daemon=True)
    other.start()
    assert IN_KERNEL.wait(60)
    del second
    GO_ON.set()
    assert tape.present_bytes >= 0  # here it waits for the kernel
    other.join(60)
    assert not other.is_alive()
    del first, other
    assert tape.finished
    assert tape.replayed_on_demand >= 2
    plain = x.detach().requires_grad_()
    backward(plain.exp().sin().square().sum())
    assert same(gradient(plain), gradient(x))
