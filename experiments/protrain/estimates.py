"""Predicted peaks beside executed ones as a table (Figure 6, below): with all deltas, and without some of them."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from experiments.models.gpt import GptShape
from experiments.protrain.peaks import LEVELS, PeakCase, peak_cases
from experiments.protrain.setting import labelled, series_of
from experiments.reproduction import Cells, Result
from runtime.profile.memory.peaks import Deltas
from solvers.ir.layout import POLICIES

PERCENT = 100
MIB = 2**20
NAMES: Mapping[Deltas, str] = {
    "all": "predicted",
    "intra": "without inter-operator deltas",
    "none": "without any deltas",
}
UNITS = {"mixes": "", "largest error": "%"}
UNITS |= {f"{NAMES[level]}, {figure}": "%" for level in LEVELS for figure in ("mean error", "lowest error")}
ALIKE = {f"all blocks {policy}": policy for policy in POLICIES}


def peaks(cells: Cells, *, mixes: int, intervals: Sequence[int], models: Sequence[Mapping[str, Any]]) -> Result:
    """Errors of predicted peaks over many mixes of policies, by model; peaks where all blocks have one policy.

    A model's fields are those of `GptShape`. Each is profiled once, with every block checkpointed, and run
    for each mix; errors are (predicted − executed) / executed. Labels `MODEL`, and `MODEL, all blocks POLICY`.
    """
    cells.total(len(models))
    errors: dict[str, Mapping[str, Any] | None] = {}
    alike: dict[str, Mapping[str, Any] | None] = {}
    for label, fields in labelled(models).items():
        cell = cells.get({"model": label}, _run, label, GptShape(**fields), mixes, intervals, cells.seed)
        errors[label] = cell
        alike |= {f"{label}, {name}": cell and cell[name] for name in ALIKE}
    shown = {"executed": "MiB", **{NAMES[level]: "MiB" for level in LEVELS}}
    return Result(series=(*series_of(errors, UNITS), *series_of(alike, shown)))


def _run(name: str, shape: GptShape, mixes: int, intervals: Sequence[int], seed: int) -> dict[str, Any]:
    return figures(peak_cases({name: shape}, mixes, seed, intervals))


def figures(cases: Sequence[PeakCase]) -> dict[str, Any]:
    """The errors of one model's cases in percent, and in MiB the peaks of the first three, which are uniform."""
    found: dict[str, Any] = {"mixes": len(cases), "largest error": PERCENT * max(abs(case.error()) for case in cases)}
    for level in LEVELS:
        errors = [PERCENT * case.error(level) for case in cases]
        found |= {f"{NAMES[level]}, mean error": fmean(errors), f"{NAMES[level]}, lowest error": min(errors)}
    for name, policy in ALIKE.items():
        case = next(case for case in cases if set(case.policies) == {policy})
        predicted = {NAMES[level]: case.predicted_bytes[level] / MIB for level in LEVELS}
        found[name] = {"executed": case.executed_bytes / MIB, **predicted}
    return found
