"""One call of `bayplan fit`: from a program or a shape, a machine and a budget to the answer."""

import sys
from dataclasses import dataclass, field, replace

from experiments.commands.questions import unit_questions
from experiments.fit.answer import TECHNIQUES, Answer, Row, Technique
from experiments.fit.judge import Asked, Budget, allocated_peak
from experiments.fit.outside import Outside, outside_of
from experiments.fit.trace import Trace
from experiments.stages import Stage
from solvers.ir.amounts import parse_budget, show_bytes
from solvers.ir.errors import InvalidInput
from solvers.ir.hardware import Hardware
from solvers.ir.names import unknown
from solvers.ir.solution import Limits
from solvers.planner import solver_names

KIND = "swap"
UNLESS_ASKED = tuple(one for one in TECHNIQUES if one != "session")
"""Techniques where none is named: a session trains some thirty steps, five times as long as the others together."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked, whatever the step: `budget` as it was written, `outside_bytes` None where it is to be assumed."""

    hardware: Hardware
    budget: str | None = None
    outside_bytes: int | None = None
    expandable: bool = False
    techniques: tuple[str, ...] = ()
    solver: str = "greedy-swap"
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        """Refuse techniques and solvers that are not there."""
        for technique in self.techniques:
            if technique not in TECHNIQUES:
                raise unknown("technique", technique, TECHNIQUES)
        if self.solver not in solver_names(KIND):
            raise unknown("solver of swap problems", self.solver, solver_names(KIND))

    @property
    def asked(self) -> Asked:
        """What every technique is asked with, techniques in the order of the table."""
        chosen: tuple[Technique, ...] = tuple(one for one in TECHNIQUES if one in (self.techniques or UNLESS_ASKED))
        return Asked(self.hardware, chosen, self.solver, self.limits)

    def budget_of(self, plain: Trace, outside: Outside) -> tuple[Budget, str]:
        """The bytes that the allocator may hold, and how they are known."""
        device = self.hardware.device().memory_bytes
        if self.budget is None:
            amount, how = device - outside.bytes, "the device's memory less what no tensor owns"
        else:
            peak = allocated_peak(plain.events)
            amount, how = parse_budget(self.budget, peak), "as given by --budget"
            for question in unit_questions(self.budget, amount, peak):  # above the peak is what fit may be asked
                print(f"bayplan: warning: {question}", file=sys.stderr)
        if amount < 1 and self.outside_bytes is not None and self.budget is None:
            raise InvalidInput(
                f"--outside is {show_bytes(outside.bytes)}, but the whole device has {show_bytes(device)}: give less "
                "than that, or a larger device"
            )
        if amount < 1:
            raise InvalidInput(f"the budget is {amount} bytes, in which nothing runs: give more, or a larger device")
        return Budget(amount, self.expandable), how


def fit_program(factory: str, question: Question) -> Answer:
    """Run the program's plain and recomputed steps on the simulated device, plan its swaps, and judge all of them.

    Raises `InvalidInput` where the program cannot be run; what a technique alone cannot do is said in its row.
    """
    from experiments.fit.program import program_rows, recorded_program

    recording = recorded_program(factory, question.hardware)
    outside = outside_of(question.hardware, 1, question.outside_bytes)
    budget, how = question.budget_of(recording.trace, outside)
    rows = program_rows(factory, question.asked, recording, budget)
    return _answer(factory, recording.trace, question, outside, (budget, how), rows)


def fit_stage(stage: Stage, question: Question) -> Answer:
    """Judge one stage of a model on paper; tensors of other devices are not this one's."""
    from experiments.fit.shapes import shape_rows, shape_trace

    cut, plain = stage.parallelism, shape_trace(stage)
    outside = outside_of(question.hardware, cut.tensor * cut.pipeline, question.outside_bytes)
    budget, how = question.budget_of(plain, outside)
    rows = shape_rows(stage, question.asked, budget)
    answer = _answer(plain.graph.name, plain, question, outside, (budget, how), rows)
    return replace(answer, attention=stage.shape.attention)


def _answer(
    name: str, plain: Trace, question: Question, outside: Outside, budget: tuple[Budget, str], rows: tuple[Row, ...]
) -> Answer:
    hardware = question.hardware
    return Answer(
        name=name,
        source=plain.graph.source,
        hardware=hardware.name,
        device_bytes=hardware.device().memory_bytes,
        outside=outside,
        budget_bytes=budget[0].bytes,
        budget_how=budget[1],
        expandable=question.expandable,
        rows=rows,
    )
