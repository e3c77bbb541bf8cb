"""A program in a session within a budget, judged against the same program with all memory."""

import contextlib
import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from torch import nn

from runtime.device import use_sim
from runtime.swap.report import SessionCounts
from runtime.swap.session import Session, session
from tests.runtime.swap.fuzz.budgets import Need, reference_run
from tests.runtime.swap.fuzz.program import Program
from tests.runtime.swap.fuzz.training import Loop, Named, Trace, Untreated, same_bits
from tests.runtime.swap.fuzz.variants import Variant


class InSession(Untreated):
    """All iterations from `begins` on in one session."""

    def __init__(self, variant: Variant, budget_bytes: int, device: torch.device) -> None:
        self.variant = variant
        self.session: Session | None = None
        self._budget_bytes = budget_bytes
        self._device = device
        self._number = 0

    @contextlib.contextmanager
    def around(self, loop: Loop) -> Iterator[None]:
        """The session ends with the program."""
        with contextlib.ExitStack() as stack:
            self._stack = stack
            yield

    def turn(self, run: Callable[[], None]) -> None:
        """Start, rest, or mark the boundary, as the variant says."""
        number, variant = self._number, self.variant
        self._number += 1
        if number == variant.begins:
            self.session = self._stack.enter_context(self._started())
        resting = self.session is not None and number == variant.pauses
        if resting and self.session is not None:
            self.session.pause()
        try:
            run()
        finally:
            if resting and self.session is not None:
                self.session.resume()
        if self.session is not None and not resting and variant.boundaries == "given":
            self.session.step()

    def _started(self) -> Session:
        variant = self.variant
        return session(
            self._budget_bytes,
            device=self._device,
            matching=variant.matching,
            record_stream=variant.record_stream,
            boundaries=variant.boundaries,
            sample_every=variant.sample_every,
            stages=variant.stages,
            solver=variant.solver,
            headroom=variant.headroom,
        )


@dataclass(frozen=True)
class Verdict:
    """What is wrong with a program in a session, None where nothing is; whether memory was short; what was swapped."""

    fault: str | None
    out_of_memory: bool = False
    counts: SessionCounts = field(default_factory=SessionCounts)


def judge(program: Program, variant: Variant, device: torch.device) -> Verdict:
    """Run the program with all memory and in the session; every difference, race and crash is a fault.

    Out of memory is none where the budget is below what the program needs at once: then the program goes on without a
    session, and must still be equal.
    """
    use_sim(races="raise")
    reference, need = reference_run(program, device)
    gc.collect()  # graphs that an exception left in cycles would stand in the session's way
    budget = variant.budget_bytes(need)
    use_sim(races="raise")
    treatment = InSession(variant, budget, device)
    loop, trace = Loop(program, device, treatment), Trace()
    kept: list[tuple[int, torch.Tensor]] = []
    try:
        with treatment.around(loop):
            for number in range(len(program.turns)):
                kept = list(loop.kept)
                loop.run_turn(number, trace)
    except torch.OutOfMemoryError as error:
        loop.kept = kept
        return Verdict(_out_of_memory(loop, trace, reference, budget, need, error), out_of_memory=True)
    except Exception as error:
        return Verdict(f"{type(error).__name__} in iteration {len(trace.turns)}: {str(error).splitlines()[0]}")
    assert treatment.session is not None
    return Verdict(_difference(trace, reference), counts=treatment.session.report().counts)


def _out_of_memory(
    loop: Loop, trace: Trace, reference: Trace, budget: int, need: Need, error: torch.OutOfMemoryError
) -> str | None:
    number, sentence = len(trace.turns), str(error)
    if budget >= need.floor_bytes:
        return f"out of memory in iteration {number} though {budget} bytes are enough for {need}: {sentence}"
    if "\n" in sentence or "budget" not in sentence:
        return f"out of memory is not told in a sentence: {sentence!r}"
    loop.treatment = Untreated()
    half_done = loop.stepping or loop.inside or "unzeroed" in loop.program.turns[number].changes
    if half_done:  # some parameters may be updated already: the iteration cannot be repeated
        use_sim(races="raise")
        return Loop(loop.program, loop.device).run().difference(_like(reference, loop.program))
    if number:
        _restore_buffers(loop.model, reference.turns[number - 1])
    else:
        loop = Loop(loop.program, loop.device)
    for rest in range(number, len(loop.program.turns)):
        loop.run_turn(rest, trace)
    return _difference(trace, reference)


def _restore_buffers(model: nn.Module, known: Named) -> None:
    """What a forward pass changes in place: running statistics."""
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            saved = known[name]
            assert saved is not None
            buffer.copy_(saved)


def _difference(trace: Trace, reference: Trace) -> str | None:
    """The first difference among what the trace holds; the reference may hold more."""
    for number, (mine, theirs) in enumerate(zip(trace.turns, reference.turns, strict=True)):
        if trace.raised[number] != reference.raised[number]:
            return f"iteration {number} raised {trace.raised[number]!r}, not {reference.raised[number]!r}"
        wrong = [name for name in mine if name not in theirs or not same_bits(mine[name], theirs[name])]
        if wrong:
            return f"iteration {number}: {len(wrong)} of {len(mine)} tensors differ, {wrong[0]} first"
    return None


def _like(reference: Trace, program: Program) -> Trace:
    """The reference as a run of the program would be: with states after the last iteration only, unless watched."""
    if program.watched:
        return reference
    last = len(reference.turns) - 1
    kept = [
        turn if number == last else {name: value for name, value in turn.items() if _is_output(name)}
        for number, turn in enumerate(reference.turns)
    ]
    return Trace(kept, list(reference.raised))


def _is_output(name: str) -> bool:
    return name.startswith(("loss ", "kept ", "validation ", "sum ", "average "))
