"""Runs a program on a device, with something done to it or not, and writes down every bit that comes out."""

import contextlib
import copy
import gc
import inspect
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import nn

from tests.runtime.swap.fuzz.beside import Beside
from tests.runtime.swap.fuzz.layers import TOKENS, Drawn, all_tensors
from tests.runtime.swap.fuzz.program import Program, Turn

SCALE = 1024.0


class Interrupted(RuntimeError):
    """What a program raises in the middle of an iteration, by its own wish."""


class Treatment(Protocol):
    """What is done to a program while it runs; `Untreated` does nothing."""

    def around(self, loop: "Loop") -> contextlib.AbstractContextManager[object]:
        """Around all iterations."""
        ...

    def turn(self, run: Callable[[], None]) -> None:
        """Run one iteration."""
        ...

    def tick(self, hidden: torch.Tensor) -> None:
        """After each part of the forward pass."""
        ...

    def before_copy(self, model: nn.Module) -> None:
        """Before the program deep-copies its model."""
        ...


class Untreated:
    """A program left alone."""

    def around(self, loop: "Loop") -> contextlib.AbstractContextManager[object]:
        """Nothing."""
        return contextlib.nullcontext()

    def turn(self, run: Callable[[], None]) -> None:
        """Run it."""
        run()

    def tick(self, hidden: torch.Tensor) -> None:
        """Nothing."""

    def before_copy(self, model: nn.Module) -> None:
        """Nothing."""


Named = dict[str, torch.Tensor | None]


@dataclass
class Trace:
    """What each iteration left behind, on the CPU: `turns` maps names to tensors; `raised` says what ended one."""

    turns: list[Named] = field(default_factory=list)
    raised: list[str] = field(default_factory=list)

    def difference(self, other: "Trace") -> str | None:
        """The first difference of bits or exceptions, in words; None where there is none."""
        if len(self.turns) != len(other.turns):
            return f"{len(self.turns)} iterations ran, of {len(other.turns)}"
        for number, (mine, theirs) in enumerate(zip(self.turns, other.turns, strict=True)):
            if self.raised[number] != other.raised[number]:
                return f"iteration {number} raised {self.raised[number]!r}, not {other.raised[number]!r}"
            if mine.keys() != theirs.keys():
                return f"iteration {number} left {sorted(mine.keys() ^ theirs.keys())} on one side only"
            wrong = [name for name in mine if not same_bits(mine[name], theirs[name])]
            if wrong:
                return f"iteration {number}: {len(wrong)} of {len(mine)} tensors differ, {wrong[0]} first"
        return None


def same_bits(mine: torch.Tensor | None, theirs: torch.Tensor | None) -> bool:
    """Whether both are None, or equal bit by bit (not a number equals itself)."""
    if mine is None or theirs is None:
        return mine is theirs
    if mine.shape != theirs.shape or mine.dtype != theirs.dtype:
        return False
    return torch.equal(mine.contiguous().flatten().view(torch.uint8), theirs.contiguous().flatten().view(torch.uint8))


class Loop:
    """A program on a device, from fresh weights."""

    def __init__(self, program: Program, device: torch.device, treatment: Treatment | None = None) -> None:
        self.program = program
        self.device = device
        self.treatment = treatment or Untreated()
        torch.manual_seed(program.seed)
        self.model = Drawn(program).to(device)
        if program.tied:
            self.model.tie()
        self.optimizers = _optimizers(program, self.model)
        self.scaler = torch.amp.GradScaler(device.type, init_scale=SCALE, growth_interval=3, enabled=program.scaled)
        self.kept: list[tuple[int, torch.Tensor]] = []
        self.side = torch.Stream(device) if program.prefetch and device.type != "cpu" else None
        self.hooks = _hooked(self.model) if program.hooked else []
        self.stepping = False
        self.beside = Beside(program, device, list(self.model.parameters()))
        self.inside = _step_inside(program, self.optimizers) if program.inside else []

    def run(self) -> Trace:
        """All iterations, and what each left behind."""
        trace = Trace()
        with self.treatment.around(self):
            for number in range(len(self.program.turns)):
                self.run_turn(number, trace)
        return trace

    def run_turn(self, number: int, trace: Trace) -> None:
        """One iteration; what it left behind is added to the trace."""
        turn, seen = self.program.turns[number], dict[str, torch.Tensor | None]()
        torch.manual_seed(1000 * self.program.seed + number)
        raised = ""
        try:
            self.treatment.turn(lambda: self._train(number, turn, seen))
        except Interrupted as wanted:
            raised = str(wanted)
        if raised:
            time.sleep(0.005)  # autograd's thread tells of an exception before it lets go of the graph
            gc.collect()  # a graph that an exception left in a cycle would go some time or other
        kept = [hidden for until, hidden in self.kept if until == number]
        self.kept = [(until, hidden) for until, hidden in self.kept if until > number]
        seen |= {f"kept {place}": hidden for place, hidden in enumerate(kept)}
        if self.program.watched or number == len(self.program.turns) - 1:
            seen |= self.state()
        trace.turns.append({name: None if one is None else one.detach().cpu().clone() for name, one in seen.items()})
        trace.raised.append(raised)

    def state(self) -> Named:
        """Parameters, buffers and gradients as they are now, on their device."""
        named: Named = dict(self.model.state_dict(keep_vars=True))
        return named | {f"gradient of {name}": one.grad for name, one in self.model.named_parameters()}

    def _train(self, number: int, turn: Turn, seen: Named) -> None:
        self.beside.begin()
        if "unzeroed" not in turn.changes:
            for optimizer in self.optimizers:
                optimizer.zero_grad(set_to_none=self.program.seed % 4 != 0)
        for micro in range(self.program.accumulation):
            loss = self._forward(number, micro, turn) / self.program.accumulation
            seen[f"loss {micro}"] = loss.detach()
            self._backward(loss, turn)
        if "skip" not in turn.changes:
            self.stepping = True
            self._step()
            self.stepping = False
        self.beside.end()
        seen |= self.beside.seen()
        if "validation" in turn.changes:
            seen["validation loss"] = self._validate(number, turn)

    def _forward(self, number: int, micro: int, turn: Turn) -> torch.Tensor:
        tokens = self._batch(number, micro, turn)
        ticks = 0

        def tick(hidden: torch.Tensor) -> None:
            nonlocal ticks
            ticks += 1
            self.treatment.tick(hidden)
            self.beside.tick(hidden)
            if ticks == 1 + len(self.program.parts) // 2:
                self._middle(number, turn, hidden)

        loss: torch.Tensor = self.model(tokens, branch="branch" in turn.changes, tick=tick)
        if "penalty" in turn.changes:
            (slope,) = torch.autograd.grad(loss, self.model.table.weight, create_graph=True)
            loss = loss + slope.square().sum()
        return self.beside.loss(loss)

    def _middle(self, number: int, turn: Turn, hidden: torch.Tensor) -> None:
        """What an iteration does in the middle of its forward pass."""
        if "log" in turn.changes:
            hidden.detach().mean().item()
        if "copy" in turn.changes:
            self.treatment.before_copy(self.model)
            self.kept.append((number, next(copy.deepcopy(self.model).parameters()).detach()))
        if "keep" in turn.changes:
            self.kept.append((min(number + 3, len(self.program.turns) - 1), hidden))
        if "raise in backward" in turn.changes:
            hidden.register_hook(_raise)  # type: ignore[no-untyped-call]
        if "raise in forward" in turn.changes:
            raise Interrupted("in the forward pass")

    def _backward(self, loss: torch.Tensor, turn: Turn) -> None:
        if "overflow" in turn.changes:
            loss = loss * float("inf")
        loss = self.scaler.scale(loss)
        if "twice" in turn.changes:
            loss.backward(retain_graph=True)  # type: ignore[no-untyped-call]
        loss.backward()  # type: ignore[no-untyped-call]

    def _step(self) -> None:
        after = [one for one in self.optimizers if one not in self.inside]
        moved = [one for one in after if any(p.grad is not None for p in one.param_groups[0]["params"])]
        for optimizer in moved:
            self.scaler.unscale_(optimizer)
        if self.program.clipped:
            nn.utils.clip_grad_norm_(self.model.parameters(), 0.5)
        for optimizer in moved:  # a scaler refuses one whose parameters took no part
            self.scaler.step(optimizer)
        self.scaler.update()

    def _validate(self, number: int, turn: Turn) -> torch.Tensor:
        self.model.eval()
        try:
            with torch.no_grad():
                losses = [self.model(self._batch(number, 100 + place, turn)) for place in range(2)]
        finally:
            self.model.train()
        return torch.stack(losses)

    def _batch(self, number: int, micro: int, turn: Turn) -> torch.Tensor:
        drawn = torch.Generator().manual_seed(self.program.seed + 31 * number + 7 * micro)
        tokens = torch.randint(TOKENS, (turn.rows, turn.length), generator=drawn)
        if self.side is None:
            return tokens.to(self.device)
        pinned = tokens.pin_memory()
        with self.side:
            moved = pinned.to(self.device, non_blocking=True)
        current = torch.accelerator.current_stream(self.device)
        current.wait_stream(self.side)
        moved.record_stream(current)
        return moved


def _raise(gradient: torch.Tensor) -> torch.Tensor:
    raise Interrupted("in the backward pass")


def _hooked(model: nn.Module) -> list[object]:
    """Hooks that rewrite gradients, one by a new tensor and one in place."""
    parameters = list(all_tensors(model))
    first, last = parameters[0], [one for one in parameters if one.requires_grad][-1]
    return [
        first.register_hook(lambda gradient: gradient * 0.5),  # type: ignore[no-untyped-call]
        last.register_post_accumulate_grad_hook(_halve),  # type: ignore[no-untyped-call]
    ]


def _halve(parameter: torch.Tensor) -> None:
    assert parameter.grad is not None
    parameter.grad.mul_(0.5)


def _optimizers(program: Program, model: Drawn) -> list[torch.optim.Optimizer]:
    parameters = list(model.parameters())
    optim = torch.optim
    table: dict[str, Callable[[], list[torch.optim.Optimizer]]] = {
        "sgd": lambda: [optim.SGD(parameters, lr=0.05, foreach=False)],
        "momentum": lambda: [optim.SGD(parameters, lr=0.05, momentum=0.9, foreach=True)],
        "adamw": lambda: [optim.AdamW(parameters, lr=1e-2, foreach=False)],
        "adamw foreach": lambda: [optim.AdamW(parameters, lr=1e-2, foreach=True)],
        "adamw fused": lambda: [optim.AdamW(parameters, lr=1e-2, fused=True)],
        "adagrad": lambda: [optim.Adagrad(parameters, lr=1e-2, foreach=False)],
        "rmsprop": lambda: [optim.RMSprop(parameters, lr=1e-3, foreach=False)],
        "nadam foreach": lambda: [optim.NAdam(parameters, lr=1e-3, foreach=True)],
        "two": lambda: [
            optim.SGD(parameters[:1], lr=0.05, foreach=False),
            optim.AdamW(parameters[1:] or [nn.Parameter(torch.zeros(1, device=parameters[0].device))], foreach=True),
        ],
    }
    return table[program.optimizer]()


def _step_inside(program: Program, optimizers: list[torch.optim.Optimizer]) -> list[torch.optim.Optimizer]:
    """In place of the last optimizer one for each parameter, which steps as soon as the gradient is there."""
    shared = optimizers.pop()
    kind, known = type(shared), inspect.signature(type(shared)).parameters
    options = {name: value for name, value in shared.defaults.items() if name in known}
    own = [kind([parameter], **options) for parameter in shared.param_groups[0]["params"]]
    for optimizer in own:
        step = _step_of(optimizer)
        for parameter in optimizer.param_groups[0]["params"]:
            parameter.register_post_accumulate_grad_hook(step)
    optimizers.extend(own)
    return own


def _step_of(optimizer: torch.optim.Optimizer) -> Callable[[torch.Tensor], None]:
    """A hook that holds nothing: a parameter that kept its optimizer alive, and so itself, would stay for ever."""
    known = weakref.ref(optimizer)

    def step(parameter: torch.Tensor) -> None:
        found = known()
        assert found is not None
        found.step()

    return step


def tensors_of(optimizers: list[torch.optim.Optimizer]) -> Iterator[torch.Tensor]:
    """The optimizers' states."""
    for optimizer in optimizers:
        for state in optimizer.state.values():
            yield from (value for value in state.values() if isinstance(value, torch.Tensor))
