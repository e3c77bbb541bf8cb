"""What ProTrain's tables have in common: machines with their ranks, how each system runs there, tokens a second."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from experiments.reproduction import Cells
from experiments.reproduction.result import OUT_OF_MEMORY, Series, Value
from solvers.ir.hardware import HOST, Hardware, Link
from solvers.ir.layout import LayoutPlan, LayoutProblem
from solvers.ir.solution import Limits, Solution
from solvers.layout.baselines import ColossalStatic, Fsdp, Zero3Offload
from solvers.layout.make import Rank, problem_from_shape
from solvers.layout.search import Search
from solvers.layout.systems import as_run_by
from solvers.workload import ModelShape

GIB = 2**30
MICROSECONDS = 10**6
GIGA = 10**9
PROTRAIN = "protrain"
Baseline = type[Zero3Offload] | type[ColossalStatic] | type[Fsdp]
BASELINES: dict[str, Baseline] = {"deepspeed": Zero3Offload, "colossal": ColossalStatic, "fsdp": Fsdp}


class Testbed(NamedTuple):
    """Where is trained: `ranks` data-parallel ranks, evenly on `hosts` hosts, sequences of `sequence` tokens."""

    hardware: Hardware
    ranks: int
    hosts: int
    sequence: int

    def problem(self, shape: ModelShape, batch: int, **changes: Any) -> LayoutProblem:
        """The problem of a rank; `batch` counts samples of all ranks."""
        rank = Rank(self.ranks, self.hosts, **changes)
        return problem_from_shape(shape, self.hardware, rank, batch=batch, sequence=self.sequence)

    def tokens_per_s(self, batch: int, step_us: int) -> float:
        """Tokens of all ranks over the step's time."""
        return batch * self.sequence * MICROSECONDS / step_us


def testbed(cells: Cells, hardware: str, *, ranks: int, sequence: int, hosts: int = 1) -> Testbed:
    """The testbed on that hardware file."""
    return Testbed(cells.hardware(hardware), ranks, hosts, sequence)


def with_rates(
    hardware: Hardware, *, host: Callable[[int], int] | None = None, network: Callable[[int], int] | None = None
) -> Hardware:
    """The machine with other rates (bytes/s) of its links to the host, and of those between devices."""

    def changed(link: Link) -> Link:
        rate = host if HOST in (link.a, link.b) else network
        return link if rate is None else msgspec.structs.replace(link, bytes_per_s=rate(link.bytes_per_s))

    return msgspec.structs.replace(hardware, links=tuple(map(changed, hardware.links)))


def with_host_link(hardware: Hardware, gb_per_s: float) -> Hardware:
    """The machine with `gb_per_s` · 10⁹ bytes/s in each direction between each device and the host."""
    return with_rates(hardware, host=lambda _: round(gb_per_s * GIGA))


def solved(system: str, problem: LayoutProblem) -> Solution[LayoutPlan]:
    """The system's plan: ProTrain's by its search, a baseline's on the problem as it runs it."""
    if system == PROTRAIN:
        return Search().solve(problem, Limits())
    baseline = BASELINES[system]
    return baseline().solve(as_run_by(baseline.NAME, problem), Limits())


def step_us(solution: Solution[LayoutPlan]) -> int | None:
    """Lane time of the plan; None where nothing fits."""
    return None if solution.plan is None or solution.objective is None else round(solution.objective)


def value_of(cell: Mapping[str, Any] | None, name: str) -> Value:
    """A cell's figure as a point: None where the cell failed, out of memory where it has none."""
    if cell is None:
        return None
    value: float | str | None = cell[name]
    return OUT_OF_MEMORY if value is None else value


def over(above: Value, below: Value) -> Value:
    """The ratio of two points, if both are numbers."""
    if isinstance(above, float | int) and isinstance(below, float | int):
        return above / below
    return None if above is None or below is None else OUT_OF_MEMORY


def series_of(cells: Mapping[str, Mapping[str, Any] | None], units: Mapping[str, str]) -> list[Series]:
    """One series for each figure of the cells, by label."""
    return [
        Series(name=name, unit=unit, points={label: value_of(cell, name) for label, cell in cells.items()})
        for name, unit in units.items()
    ]


def largest(fits: Callable[[int], bool], most: int) -> int:
    """The largest of 0…most that fits, if all smaller ones do; 0 is not asked."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def labelled(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """An entry's rows by their `label`."""
    return {str(row["label"]): {name: value for name, value in row.items() if name != "label"} for row in rows}
