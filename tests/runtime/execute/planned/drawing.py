"""Which runs are tried: drawn at random, but the same whenever they are drawn."""

import random

from tests.runtime.execute.planned.judging import MACHINES, SOLVERS, Run
from tests.runtime.execute.planned.programs import DRAWN, PROGRAMS

TIGHT = 0.1
"""Budgets up to this share of the way from the least to the highest are tight."""


OF_RANDOM_LAYERS = 8
"""One in so many runs trains a network of random layers."""


def drawn(count: int) -> list[Run]:
    """So many runs: all programs in turn, each time with another solver, budget, seed and link."""
    names, runs = list(PROGRAMS), list[Run]()
    while len(runs) < count:
        number = len(runs)
        if number % OF_RANDOM_LAYERS == OF_RANDOM_LAYERS - 1:
            runs.append(_run(f"{DRAWN}{number}", 0, number))
        else:
            named = number - number // OF_RANDOM_LAYERS
            runs.append(_run(names[named % len(names)], named // len(names), number))
    return runs


def _run(program: str, turn: int, number: int) -> Run:
    rng = random.Random(f"planned {number}")
    return Run(
        program=program,
        solver=SOLVERS[(turn + number) % len(SOLVERS)],
        share=_share(rng),
        seed=turn,
        machine=rng.choice(list(MACHINES)),
        another=rng.choice(list(MACHINES)) if rng.random() < 0.2 else None,
        noise=0.3 if rng.random() < 0.3 else 0.0,
        races="record" if rng.random() < 0.25 else "raise",
    )


def _share(rng: random.Random) -> float:
    """Often the least budget or little more, at times the highest."""
    kind = rng.random()
    if kind < 0.2:
        return 0.0
    if kind < 0.4:
        return round(rng.uniform(0.0, TIGHT), 3)
    return 1.0 if kind > 0.9 else round(rng.uniform(TIGHT, 1.0), 3)
