"""HEU as the paper prints it against HEU corrected, on the first stage of a pipeline (§4.2, Equations 2 to 9)."""

from collections.abc import Sequence
from typing import Any

from experiments.reproduction import Cells, Result, Series, scalar
from experiments.reproduction.result import Value
from solvers.ir.hardware import Hardware
from solvers.ir.solution import Limits
from solvers.partition.pipeline import Pipeline, machine_split, pipeline_within
from solvers.recompute.layer import Heu
from solvers.recompute.layer.front import Policy
from solvers.recompute.layer.printed import compare_printed, dependency_violations
from solvers.workload import ModelShape

FIGURES = {
    "violations of printed": ("violations", ""),
    "violations of corrected": ("corrected_violations", ""),
    "printed": ("printed_us", "µs"),
    "corrected": ("corrected_us", "µs"),
    "unneeded operators of printed": ("unneeded", ""),
    "bytes of printed over the budget": ("over_bytes", "B"),
}


def printed_heu(
    cells: Cells, *, model: str, cluster: str, microbatch_sizes: Sequence[int], budgets: Sequence[float]
) -> Result:
    """Both optima for each microbatch size and budget, labels `mbs N budget F`; times of one layer."""
    cells.total(len(microbatch_sizes) * len(budgets))
    machine, shape = cells.hardware(cluster), cells.shape(model)
    found = {
        f"mbs {size} budget {share}": cells.get({"mbs": size, "budget": share}, _compared, shape, machine, size, share)
        for size in microbatch_sizes
        for share in budgets
    }
    series = [
        Series(name=name, unit=unit, points={label: _figure(cell, key) for label, cell in found.items()})
        for name, (key, unit) in FIGURES.items()
    ]
    ratios = {label: _ratio(cell) for label, cell in found.items()}
    known = [cell for cell in found.values() if cell is not None]
    wrong = sum(bool(cell["violations"]) for cell in known)
    return Result(
        series=(
            *series,
            Series(name="printed over corrected", unit="x", points=ratios),
            scalar("instances with violations", "", float(wrong) if known else None),
        ),
        notes=(f"{len(known)} instances, times by roofline and links of hardware {cluster}; nothing was measured.",),
    )


def _figure(cell: dict[str, Any] | None, key: str) -> Value:
    if cell is None:
        return None
    value = cell[key]
    return "no plan" if value is None else float(value)


def _ratio(cell: dict[str, Any] | None) -> Value:
    if cell is None:
        return None
    if cell["printed_us"] is None or cell["corrected_us"] is None:
        return "no plan"
    return float(cell["printed_us"] / cell["corrected_us"]) if cell["corrected_us"] else "nothing to recompute"


def _compared(shape: ModelShape, machine: Hardware, microbatch: int, share: float) -> dict[str, Any]:
    pipeline = pipeline_within(shape, machine, machine_split(machine), microbatch, share)
    problem = pipeline.heu_problem(0, pipeline.even_layers())
    (row,) = compare_printed([problem])
    return {
        "printed_us": row.printed_us,
        "corrected_us": row.corrected_us,
        "violations": row.violations,
        "unneeded": row.unneeded,
        "over_bytes": row.over_bytes,
        "corrected_violations": _violations(pipeline),
    }


def _violations(pipeline: Pipeline) -> int | None:
    """The same count for the corrected answer."""
    problem = pipeline.heu_problem(0, pipeline.even_layers())
    plan = Heu().solve(problem, Limits()).plan
    if plan is None:
        return None
    return sum(dependency_violations(problem, Policy(group.stored, group.recomputed)) for group in plan.groups)
