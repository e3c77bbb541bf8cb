"""Every wait is needed: with any one of them dropped, the race check names a race."""

import ast
import inspect
import sys
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim.optimizer import Optimizer

from runtime.device import SimDevice
from runtime.layout import gradients, hooks, store, swaps, unwrap, updates
from runtime.layout.chunk import Chunk
from runtime.layout.host_lane import Done
from runtime.layout.log import Log
from runtime.layout.wrap import WRAPPED
from runtime.layout.wrapped import Wrapped
from solvers.ir.layout import LayoutPlan, Policy
from tests.runtime.layout.models import Language, batch, loss_of
from tests.runtime.layout.test_loops import Signs, accumulating, evaluating, retaining
from tests.runtime.layout.training import Layouts, plain_loop
from tests.soaking import some

CLASSES = {store: "Store", gradients: "Gradients", updates: "Updates", swaps: "Swaps"}
WAITS = {"wait_event", "synchronize", "wait", "record_stream"}


def looking_on(model: nn.Module, optimizer: Optimizer) -> list[Tensor]:
    """Reads gradients right after each of two backward passes."""
    for number in range(2):
        loss_of(model, number).backward()  # type: ignore[no-untyped-call]
        norms = [one.grad.norm() for one in model.parameters() if one.grad is not None]
        assert norms
    optimizer.step()
    return []


def loading(model: nn.Module, optimizer: Optimizer) -> list[Tensor]:
    """Loads states while a forward runs."""
    states = {name: one.clone() for name, one in model.state_dict().items()}
    tokens = batch(0)[0].to("sim")
    for _ in range(2):
        model(tokens)
        model.load_state_dict(states)
    return []


def unwrapping(model: nn.Module, optimizer: Optimizer) -> list[Tensor]:
    """Unwraps while the host's worker updates masters beside backward."""
    plain_loop(model, optimizer, 1)
    loss_of(model, 1).backward()  # type: ignore[no-untyped-call]
    unwrap(model)
    return []


def peeking(model: nn.Module, optimizer: Optimizer) -> list[Tensor]:
    """Runs a block alone before the step, and waits for nothing."""
    loss_of(model, 0).backward()  # type: ignore[no-untyped-call]
    with torch.no_grad():
        model.get_submodule("blocks.1")(torch.ones(8, 16, 32, device="sim"))
    optimizer.step()
    return []


LOOPS = (plain_loop, accumulating, evaluating, retaining, looking_on, unwrapping)


def waits(module: ModuleType) -> list[int]:
    """The lines of a module on which somebody waits, each a statement of its own."""
    nodes = ast.walk(ast.parse(inspect.getsource(module)))
    return [node.lineno for node in nodes if isinstance(node, ast.Expr) and _is_wait(node)]


def _is_wait(node: ast.AST) -> bool:
    if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Call):
        return False
    return isinstance(node.value.func, ast.Attribute) and node.value.func.attr in WAITS


class _Dropping(ast.NodeTransformer):
    def __init__(self, line: int) -> None:
        self.line = line

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        return ast.copy_location(ast.Pass(), node) if node.lineno == self.line and _is_wait(node) else node


def without(module: ModuleType, line: int) -> Any:
    """The module's class with one wait dropped."""
    tree = ast.fix_missing_locations(_Dropping(line).visit(ast.parse(inspect.getsource(module))))
    names = dict(vars(module))
    exec(compile(tree, f"{module.__name__} without line {line}", "exec"), names)
    return names[CLASSES[module]]


def cases() -> Iterator[tuple[ModuleType, int]]:
    for module in CLASSES:
        for line in waits(module):
            yield module, line


def swapping(layouts: Layouts) -> LayoutPlan:
    """Nothing but activations travels, of all blocks."""
    problem = layouts.problem
    policies: tuple[Policy, ...] = tuple("swap" if block.choice else "keep" for block in problem.blocks)
    return LayoutPlan(persistent=tuple(range(len(problem.chunks))), buffers=0, policies=policies)


def swap_by_hand(sim: SimDevice) -> None:
    """A storage goes as soon as it is made, another one takes its bytes meanwhile, and it comes back."""
    moves = vars(hooks)["Swaps"](Log(sim.device, 2**60), lambda number: None)
    tensor = torch.randn(1 << 16, device="sim")
    before = tensor.cpu()
    tensor = tensor * 2
    moves.leaving(0, [tensor])
    moves.send(tensor)
    for _ in range(4):
        other = torch.randn(1 << 16, device="sim")
        other.mul_(2)
        del other
    moves.fetch(0, [tensor])
    moves.arrived(0)
    assert torch.equal((tensor * 1).cpu(), before * 2)


def races_of(sim: SimDevice) -> bool:
    """Whether any of some trainings races."""
    layouts, mixed = Layouts(Language), Layouts(Language, 12_000, dtype=torch.bfloat16)
    signs = Layouts(Language, make_optimizer=Signs)
    try:
        swap_by_hand(sim)
    except RuntimeError as error:
        if "race" not in str(error):
            raise
        return True
    for layouts, loop in [
        *((layouts, loop) for loop in LOOPS),
        (mixed, looking_on),
        (mixed, loading),
        (signs, peeking),
    ]:
        for plan in (*map(layouts.random_plan, (2, 3, 9)), swapping(layouts)):
            model, optimizer = layouts.wrapped(plan)
            try:
                loop(model, optimizer)
                [parameter.sum() for parameter in model.parameters()]
                sim.synchronize()
            except RuntimeError as error:
                if "race" not in str(error):
                    raise
                return True
            finally:
                wrapped = model.__dict__.pop(WRAPPED, None)
                del wrapped, model, optimizer
    return False


@pytest.mark.parametrize(
    "module, line", some(pytest.param(m, n, id=f"{m.__name__.split('.')[-1]}-{n}") for m, n in cases())
)
def test_a_dropped_wait_is_named(
    sim: SimDevice, monkeypatch: pytest.MonkeyPatch, module: ModuleType, line: int
) -> None:
    user = hooks if module is swaps else sys.modules[Wrapped.__module__]
    monkeypatch.setattr(user, CLASSES[module], without(module, line))
    assert races_of(sim), f"nobody misses the wait in line {line} of {module.__name__}"


class NotAfter(updates.Updates):
    """Updates that wait for no gradients."""

    def _submit(self, chunk: Chunk, after: torch.Event | None) -> None:
        super()._submit(chunk, None)


class NotSummedAfter(gradients.Gradients):
    """Sums that wait for no gradients."""

    def _accumulate(self, chunk: Chunk, staged: Tensor, added: Mapping[int, Tensor]) -> Done:
        left, chunk.left = chunk.left, None
        try:
            return super()._accumulate(chunk, staged, added)
        finally:
            chunk.left = left


@pytest.mark.parametrize("mutant", [NotAfter, NotSummedAfter])
def test_work_of_the_host_that_does_not_wait_is_named(
    sim: SimDevice, monkeypatch: pytest.MonkeyPatch, mutant: type
) -> None:
    monkeypatch.setattr(sys.modules[Wrapped.__module__], mutant.__mro__[1].__name__, mutant)
    assert races_of(sim)


def test_there_are_waits_to_drop(sim: SimDevice) -> None:
    assert len(list(cases())) >= 6
    assert not races_of(sim)
    assert torch.accelerator.is_available()
