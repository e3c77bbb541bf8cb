"""Runs samples with and without a tape, and counts how they ended.

The region is the operator and, of each of its differentiable results, the square: which saves the result. Nobody else
holds it then, so that the backward pass runs the operator again.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from runtime.recompute.tape import NOTHING, Tape, record
from tests.csrc.sim.opinfo.copies import Copies
from tests.csrc.sim.opinfo.outcomes import Outcome, difference, failure, image, outcome
from tests.csrc.sim.opinfo.programs import UNWRITTEN, _differentiable, _samples_of, forward, gradients, name_of
from tests.csrc.sim.opinfo.sweep import sentence_of

Region = Callable[[Copies], tuple[Any, list[Tensor], list[Tensor]]]
"""Results, what gradients are taken of, and what is looked at afterwards."""


@dataclass(frozen=True)
class Plan:
    """Which samples are run: of each operator and type the first ones (None: all)."""

    dtypes: tuple[torch.dtype, ...] = (torch.float32,)
    samples: int | None = 1
    operators: str = "."
    """A regular expression that the names of operators and modules match."""
    shard: tuple[int, int] = (0, 1)
    """Number and count of equal parts of the operators."""


@dataclass(frozen=True)
class Program:
    """An operator or a module on one sample."""

    operator: str
    dtype: str
    number: int
    build: Callable[[Copies], Region]

    def on(self, device: str, *, taped: bool) -> tuple[Outcome, Tape | None]:
        """Trains on it once, from the same seed."""
        copies, tape = Copies(device), None
        torch.manual_seed(self.number)
        try:
            region = self.build(copies)
            with record(_place(device), NOTHING) if taped else nullcontext() as tape:
                results, parameters, buffers = region(copies)
                made = [leaf for leaf in tree_leaves(results) if isinstance(leaf, Tensor) and leaf.requires_grad]
                ends = [leaf * leaf for leaf in made]
            images = [image(leaf, copies) for leaf in tree_leaves(results) if isinstance(leaf, Tensor)]
            del results, made
            taken = gradients(ends, [*copies.tensors(), *parameters])
            found = outcome([taken, buffers, *_random_states(device)], copies)
            return Outcome((*images, *found.results), found.inputs), tape
        except Exception as error:  # whatever PyTorch raises for this sample
            return failure(error), tape

    def __str__(self) -> str:
        return f"{self.operator} ({self.dtype}, sample {self.number})"


def _place(device: str) -> torch.device:
    return torch.device(device) if device == "cpu" else torch.device(device, 0)


def _random_states(device: str) -> list[Tensor]:
    states = [torch.get_rng_state()]
    return states if device == "cpu" else [*states, torch.get_device_module(device).get_rng_state()]


def programs(plan: Plan) -> Iterator[Program]:
    """Every operator with a derivative and every module of PyTorch's lists, in their order."""
    from torch.testing._internal.common_methods_invocations import op_db  # seconds, which other files need not wait
    from torch.testing._internal.common_modules import module_db

    known: list[Any] = [*op_db, *module_db]
    chosen = [info for info in known if re.search(plan.operators, _name(info)) and _name(info) not in UNWRITTEN]
    for info in chosen[plan.shard[0] :: plan.shard[1]]:
        for dtype in plan.dtypes:
            if hasattr(info, "module_cls"):
                if dtype in info.supported_dtypes("cpu"):
                    yield from _of_module(info, dtype, plan.samples)
            elif _differentiable(info, dtype):
                for number, sample in enumerate(islice(_samples_of(info, dtype), plan.samples)):
                    yield Program(info.full_name, name_of(dtype), number, partial(_operator, info, sample))


def _name(info: Any) -> str:
    return str(info.name if hasattr(info, "module_cls") else info.full_name)


def _operator(op: Any, sample: Any, copies: Copies) -> Region:
    copies.of((sample.input, sample.args, sample.kwargs))
    return lambda copies: (sample.output_process_fn_grad(forward(op, sample, copies)), [], [])


def _of_module(info: Any, dtype: torch.dtype, samples: int | None) -> Iterator[Program]:
    for training in (True, False) if info.train_and_eval_differ else (True,):
        torch.manual_seed(0)
        inputs = info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=True, training=training)
        for number, sample in enumerate(islice(inputs, samples)):
            build = partial(_module, info, sample, dtype, training)
            yield Program(f"{info.name} {'training' if training else 'evaluating'}", name_of(dtype), number, build)


def _module(info: Any, sample: Any, dtype: torch.dtype, training: bool, copies: Copies) -> Region:
    built = sample.constructor_input
    module = info.module_cls(*built.args, **built.kwargs).to(dtype).train(training).to(copies.device)
    given = sample.forward_input
    arguments, named = copies.of(given.args), copies.of(given.kwargs)
    return lambda _: (module(*arguments, **named), list(module.parameters()), list(module.buffers()))


@dataclass
class Tally:
    """How programs ended on one device; each is in exactly one of the first five."""

    equal: Counter[str] = field(default_factory=Counter)
    refused_by_both: Counter[str] = field(default_factory=Counter)
    not_repeated: Counter[str] = field(default_factory=Counter)
    """Programs that give other bits at the second time without a tape."""
    refused: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    """Programs that fail with a tape alone: by sentence, by operator."""
    different: dict[str, str] = field(default_factory=dict)
    tried: Counter[str] = field(default_factory=Counter)
    replayed: Counter[str] = field(default_factory=Counter)
    """Equal programs of which something ran again."""
    stored: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    """Operators of PyTorch's dispatcher that do not run again: by reason."""

    def add(self, program: Program, device: str) -> None:
        """Runs a program without a tape and with one; where that differs, again without one."""
        self.tried[program.operator] += 1
        plain, _ = program.on(device, taped=False)
        found, tape = program.on(device, taped=True)
        told = None if plain.error is not None or found.error is not None else difference(plain, found)
        if plain.error is not None and found.error is not None:
            self.refused_by_both[program.operator] += 1
        elif plain.error is not None:
            self.different[str(program)] = f"runs, where plain training raises {plain.error}: {plain.sentence}"
        elif found.error is None and told is None:
            self.equal[program.operator] += 1
            if tape is not None:
                self.replayed[program.operator] += tape.replayed_on_demand > 0
        elif not _repeats(plain, program.on(device, taped=False)[0]):
            self.not_repeated[program.operator] += 1
        elif told is None:
            self.refused[sentence_of(found)][program.operator] += 1
        else:
            self.different[str(program)] = told
        for node in tape.nodes if tape is not None else ():
            if node.why_stored is not None:
                self.stored[node.why_stored][node.name] += 1


def _repeats(plain: Outcome, again: Outcome) -> bool:
    return again.error is None and difference(plain, again) is None


def sweep(chosen: Iterable[Program], device: str) -> Tally:
    """Runs each program on the device."""
    tally = Tally()
    for program in chosen:
        tally.add(program, device)
    return tally
