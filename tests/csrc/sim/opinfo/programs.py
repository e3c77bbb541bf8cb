"""What is run for one sample of an operator or a module: ways of calling it, each a program that any device can run."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.testing._internal import common_utils
from torch.utils._pytree import tree_leaves, tree_map

from tests.csrc.sim.opinfo.copies import Copies
from tests.csrc.sim.opinfo.outcomes import Outcome, failure, outcome

UNWRITTEN = frozenset(
    {
        "empty",
        "empty_like",
        "empty_permuted",
        "empty_strided",
        "new_empty",
        "new_empty_strided",
        "resize_",
        "resize_as_",
    }
)
"""Operators whose results hold whatever the memory held, but for PyTorch's deterministic mode, which fills it."""

common_utils.extract_test_fn = lambda: None
"""PyTorch's iterators of samples look through the whole stack, sources included, for a `unittest` that they belong to.
None of ours is one, and the search took four fifths of a sweep's time."""

Way = Callable[[Any, Any, Copies], Any]
"""Calls an operator (an OpInfo) on copies of a sample, and returns everything that it computed."""


@dataclass(frozen=True)
class Program:
    """One way of calling an operator or a module on one sample."""

    operator: str
    dtype: str
    way: str
    number: int
    run: Callable[[Copies], Any]

    def on(self, device: str) -> Outcome:
        """Runs it on a device, from the same seed; memory that nothing writes is filled alike."""
        copies = Copies(device)
        seed(self.number)
        try:
            with _filled_memory() if self.operator in UNWRITTEN else nullcontext():
                return outcome(self.run(copies), copies)
        except Exception as error:  # whatever PyTorch raises for this sample
            return failure(error)

    def __str__(self) -> str:
        return f"{self.operator} ({self.dtype}, {self.way}, sample {self.number})"


def seed(number: int) -> None:
    """`torch.manual_seed` for the host and the simulated device alone: for others it keeps the stack, each time."""
    torch.random._seed_custom_device(number)
    torch.default_generator.manual_seed(number)


@contextmanager
def _filled_memory() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def programs_of(op: Any, dtype: torch.dtype, samples: int | None, chosen: frozenset[str]) -> Iterator[Program]:
    """The programs of an operator's first samples of a type (None: all), in every chosen way that is possible."""
    for number, sample in enumerate(islice(_samples_of(op, dtype), samples)):
        for name, way in _ways_of(op, sample, dtype).items():
            if name in chosen:
                yield Program(op.full_name, name_of(dtype), name, number, partial(way, op, sample))


def refused_programs_of(op: Any, samples: int | None) -> Iterator[Program]:
    """Samples that PyTorch says an operator must refuse."""
    if op.error_inputs_func is None:
        return
    seed(0)
    for number, wrong in enumerate(islice(op.error_inputs("cpu"), samples)):
        yield Program(op.full_name, "mixed", "wrong input", number, partial(forward, op, wrong.sample_input))


def name_of(dtype: torch.dtype) -> str:
    """A type's name without its module's."""
    return str(dtype).removeprefix("torch.")


def _samples_of(op: Any, dtype: torch.dtype) -> Iterator[Any]:
    """PyTorch's samples, the same ones whatever random numbers are drawn between them."""
    seed(0)
    samples = iter(op.sample_inputs("cpu", dtype, requires_grad=_differentiable(op, dtype)))
    while (sample := next(samples, None)) is not None:
        state = torch.get_rng_state()
        yield sample
        torch.set_rng_state(state)


def _differentiable(op: Any, dtype: torch.dtype) -> bool:
    return bool(op.supports_autograd and dtype in op.supported_backward_dtypes("cpu"))


def _ways_of(op: Any, sample: Any, dtype: torch.dtype) -> dict[str, Way]:
    differentiable = _differentiable(op, dtype)
    possible: dict[str, tuple[Way, bool]] = {
        "forward": (forward, True),
        "backward": (backward, differentiable),
        "in place": (in_place, op.get_inplace() is not None and not sample.broadcasts_input),
        "out": (out, op.supports_out),
        "forward mode": (forward_mode, differentiable and op.supports_forward_ad),
        "second order": (second_order, differentiable and op.supports_gradgrad),
    }
    return {name: way for name, (way, runs) in possible.items() if runs}


def forward(op: Any, sample: Any, copies: Copies) -> Any:
    """The operator's results."""
    return op(copies.of(sample.input), *copies.of(sample.args), **copies.of(sample.kwargs))


def backward(op: Any, sample: Any, copies: Copies) -> Any:
    """Results, and the gradients of every input that takes one."""
    results = forward(op, sample, copies)
    return results, gradients(sample.output_process_fn_grad(results), copies.tensors())


def gradients(results: Any, inputs: list[Tensor], *, recorded: bool = False) -> tuple[Tensor | None, ...]:
    """Gradients of random multiples of all differentiable results, for all inputs that take one."""
    outputs = [leaf for leaf in tree_leaves(results) if isinstance(leaf, Tensor) and leaf.requires_grad]
    taking = [tensor for tensor in inputs if tensor.requires_grad]
    if not outputs or not taking:
        return ()
    weights = [random_like(output) for output in outputs]
    return torch.autograd.grad(outputs, taking, weights, allow_unused=True, create_graph=recorded)


def second_order(op: Any, sample: Any, copies: Copies) -> Any:
    """Gradients, and their gradients."""
    results = sample.output_process_fn_grad(forward(op, sample, copies))
    first = gradients(results, copies.tensors(), recorded=True)
    return first, gradients(first, copies.tensors())


def in_place(op: Any, sample: Any, copies: Copies) -> Any:
    """The in-place variant's result, and the input that it wrote."""
    operand = copies.of(sample.input)
    with torch.no_grad():
        return op.get_inplace()(operand, *copies.of(sample.args), **copies.of(sample.kwargs)), operand


def out(op: Any, sample: Any, copies: Copies) -> Any:
    """The results in tensors that were given for them: of the right size, and of none."""
    with torch.no_grad():
        results = forward(op, sample, copies)
        several = isinstance(results, tuple)
        tensors = results if several else (results,)
        given = [tuple(torch.ones_like(each) for each in tensors), tuple(each.new_empty(0) for each in tensors)]
        arguments, named = copies.of((sample.input, *sample.args)), copies.of(sample.kwargs)
        return [op(*arguments, **named, out=each if several else each[0]) for each in given]


def forward_mode(op: Any, sample: Any, copies: Copies) -> Any:
    """Results and their derivatives along a random direction of every input that takes a gradient."""
    with forward_ad.dual_level():

        def dual(value: Any) -> Any:
            if not isinstance(value, Tensor) or not value.requires_grad:
                return value
            return forward_ad.make_dual(value.detach(), random_like(value))  # type: ignore[no-untyped-call]

        arguments = tree_map(dual, copies.of((sample.input, *sample.args)))
        results = op(*arguments, **tree_map(dual, copies.of(sample.kwargs)))
        duals = [leaf for leaf in tree_leaves(results) if isinstance(leaf, Tensor)]
        return [tuple(forward_ad.unpack_dual(leaf)) for leaf in duals]  # type: ignore[no-untyped-call]


def random_like(tensor: Tensor) -> Tensor:
    """Random numbers of a tensor's shape, drawn on the CPU."""
    return torch.randn(tensor.shape, dtype=tensor.dtype).to(tensor.device)


def module_programs_of(info: Any, dtype: torch.dtype, samples: int | None) -> Iterator[Program]:
    """A module's first samples, each in training and in evaluation where these differ: a step forward and backward."""
    for training in (True, False) if info.train_and_eval_differ else (True,):
        seed(0)
        inputs = info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=True, training=training)
        for number, sample in enumerate(islice(inputs, samples)):
            run = partial(_module_step, info, sample, dtype, training)
            way = "module in training" if training else "module in evaluation"
            yield Program(info.name, name_of(dtype), way, number, run)


def _module_step(info: Any, sample: Any, dtype: torch.dtype, training: bool, copies: Copies) -> Any:
    """Results, gradients of inputs and parameters, and the parameters and buffers afterwards."""
    built = sample.constructor_input
    module = info.module_cls(*built.args, **built.kwargs).to(dtype).train(training).to(copies.device)
    given = sample.forward_input
    results = module(*copies.of(given.args), **copies.of(given.kwargs))
    parameters = list(module.parameters())
    return results, gradients(results, [*copies.tensors(), *parameters]), module.state_dict()
