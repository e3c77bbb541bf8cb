"""Runs many programs on both devices and counts how they ended."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from tests.csrc.sim.opinfo.outcomes import Outcome, difference
from tests.csrc.sim.opinfo.programs import Program, module_programs_of, programs_of, refused_programs_of

WAYS = ("forward", "backward", "in place", "out", "forward mode", "second order")
MODULES = "modules"
WRONG = "wrong input"


@dataclass(frozen=True)
class Plan:
    """Which of PyTorch's samples are run: of each operator and type the first ones (None: all), in these ways."""

    dtypes: tuple[torch.dtype, ...] = (torch.float32,)
    samples: int | None = 1
    ways: frozenset[str] = frozenset({"forward", "backward", MODULES})
    operators: str = "."
    """A regular expression that the names of operators and modules match."""
    shard: tuple[int, int] = (0, 1)
    """Number and count of equal parts of the operators."""


def programs(plan: Plan) -> Iterator[Program]:
    """All programs of a plan, in PyTorch's order of operators."""
    from torch.testing._internal.common_methods_invocations import op_db  # seconds, which other files need not wait
    from torch.testing._internal.common_modules import module_db

    known: list[Any] = [*op_db, *module_db]
    chosen = [info for info in known if re.search(plan.operators, _name(info))]
    for info in chosen[plan.shard[0] :: plan.shard[1]]:
        if hasattr(info, "module_cls"):
            for dtype in plan.dtypes:
                if MODULES in plan.ways and dtype in info.supported_dtypes("cpu"):
                    yield from module_programs_of(info, dtype, plan.samples)
            continue
        for dtype in plan.dtypes:
            if dtype in info.supported_dtypes("cpu"):
                yield from programs_of(info, dtype, plan.samples, plan.ways)
        if WRONG in plan.ways:
            yield from refused_programs_of(info, plan.samples)


def _name(info: Any) -> str:
    return str(info.name if hasattr(info, "module_cls") else info.full_name)


@dataclass
class Tally:
    """How programs ended; each is in exactly one of the four."""

    equal: Counter[str] = field(default_factory=Counter)
    refused_by_both: Counter[str] = field(default_factory=Counter)
    refused: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    """Programs that sim refuses and the CPU does not: by sentence, by operator."""
    different: dict[str, str] = field(default_factory=dict)
    """What differs, by program."""
    tried: Counter[str] = field(default_factory=Counter)
    """All programs, by way."""
    operators: Counter[str] = field(default_factory=Counter)
    """All programs, by operator or module."""
    samples: set[tuple[str, str, str, int]] = field(default_factory=set)

    def add(self, program: Program, on_cpu: Outcome, on_sim: Outcome) -> None:
        """Counts one program's two outcomes."""
        self.tried[program.way] += 1
        self.operators[program.operator] += 1
        kind = program.way if program.way not in WAYS else "operator"
        self.samples.add((program.operator, program.dtype, kind, program.number))
        if on_cpu.error is not None and on_sim.error is not None:
            self.refused_by_both[program.way] += 1
        elif on_sim.error is not None:
            self.refused[sentence_of(on_sim)][program.operator] += 1
        elif on_cpu.error is not None:
            self.different[str(program)] = f"runs, where the CPU raises {on_cpu.error}: {on_cpu.sentence}"
        elif (told := difference(on_cpu, on_sim)) is not None:
            self.different[str(program)] = told
        else:
            self.equal[program.way] += 1


def sentence_of(outcome: Outcome) -> str:
    """An error's type and first line; its numbers are left out, so that errors of one kind count as one."""
    return f"{outcome.error}: {re.sub(r'[0-9]+', 'N', outcome.sentence)}"


def sweep(chosen: Iterable[Program]) -> Tally:
    """Runs each program on the CPU, then on sim."""
    tally = Tally()
    for program in chosen:
        tally.add(program, program.on("cpu"), program.on("sim"))
    return tally
