"""ProTrain's search on every model of its table 1 and both testbeds, beside the 60 ms that the paper needs."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from experiments.bench.figure import Figure
from experiments.hardware import read_hardware
from experiments.reproduction.entry import Entry, read_entry
from experiments.shapes import read_shape
from solvers.ir.layout import LayoutPlan, LayoutProblem
from solvers.ir.solution import Limits, Solution
from solvers.layout.make import Rank, problem_from_shape
from solvers.layout.search import Search

ENTRY = "protrain-analytic"
"""The entry of `conf/table` whose models, testbeds and batches are used."""
GOAL_MS, PAPER_MS = 10, 60
"""The paper's search takes 0.06 s on average on the machine with RTX 3090 (§5.3.4)."""
ADDITIONS = 100_000
REFERENCE = f"reference, a loop of {ADDITIONS:,} additions"


@dataclass(frozen=True)
class Timed:
    """Processor times of one search and, right before each, of the reference operation; the search on the clock."""

    problem: LayoutProblem
    batch: int
    answer: Solution[LayoutPlan]
    search_ms: list[float]
    reference_ms: list[float]
    clock_ms: list[float]


def layout_figures(runs: int, models: int | None = None) -> list[Figure]:
    """The best of `runs` runs and their median, for the batch that takes longest; `models`: only the first ones.

    Processor times: a search is one thread that waits for nothing, so that a quiet core's clock shows the same. Ratios
    are to the best time of the reference operation, which is timed before every search: what slows the machine slows
    both.
    """
    entry = read_entry(ENTRY)
    found = {f"{name} on {machine}": _slowest(entry, name, machine, runs) for name, machine in _pairs(entry, models)}
    reference_ms = min(each for timed in found.values() for each in timed.reference_ms)
    figures = [_figure(name, timed, reference_ms) for name, timed in found.items()]
    return [*figures, Figure(REFERENCE, reference_ms, "ms", None, "", "best of all in this run")]


def _pairs(entry: Entry, models: int | None) -> Iterator[tuple[str, str]]:
    return ((name, machine) for machine in entry.hardware for name in entry.models[:models])


def _slowest(entry: Entry, name: str, machine: str, runs: int) -> Timed:
    shape, hardware, parameters = read_shape(name), read_hardware(machine), entry.parameters
    ranks, sequence = parameters["ranks"], parameters["sequence"]
    every = (
        _timed(problem_from_shape(shape, hardware, Rank(ranks=ranks), batch=batch, sequence=sequence), batch, runs)
        for batch in parameters["batches"]
    )
    return max(every, key=lambda timed: min(timed.search_ms))


def _timed(problem: LayoutProblem, batch: int, runs: int) -> Timed:
    search_ms, reference_ms, clock_ms = [], [], []
    for _ in range(runs):
        began = time.process_time()
        _add()
        between, clock = time.process_time(), time.perf_counter()
        answer = Search().solve(problem, Limits())
        clock_ms.append(1e3 * (time.perf_counter() - clock))
        search_ms.append(1e3 * (time.process_time() - between))
        reference_ms.append(1e3 * (between - began))
    return Timed(problem, batch, answer, search_ms, reference_ms, clock_ms)


def _add() -> int:
    total = 0
    for number in range(ADDITIONS):
        total += number
    return total


def _figure(name: str, timed: Timed, reference_ms: float) -> Figure:
    best, middle, problem = min(timed.search_ms), median(timed.search_ms), timed.problem
    size = f"{len(problem.blocks)} blocks, {len(problem.chunks)} chunks, batch {timed.batch}"
    goal = f"goal of {GOAL_MS} ms {'met' if best <= GOAL_MS else 'missed'}, paper {PAPER_MS} ms"
    times = f"median {middle:.3g} ms, best on the clock {min(timed.clock_ms):.3g} ms"
    how = f"{timed.answer.status.value}, {size}; {times}; {goal}"
    return Figure(f"search, {name}", best, "ms", best / reference_ms, "reference", how)
