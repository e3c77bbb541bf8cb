"""Figure 7: losses of a long training within a budget, beside the unlimited run's, and where Capuchin's ends."""

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.config import DeviceKind, GptConf, HardwareConf
from experiments.reproduction import Cells, Result, Series
from experiments.reproduction.result import OUT_OF_MEMORY, Value
from experiments.stability.execution import Progress, execute
from experiments.stability.record import Entry, Run, run_from_raw, run_to_raw
from experiments.stability.settings import Policy, ScalingConf, StabilitySettings
from experiments.worlds import World

COUNTED = {
    "regenerations": "regenerations",
    "returns to a policy": "returns",
    "swaps brought back in time": "in_time",
    "swaps brought back on demand": "fallbacks",
    "passive swaps": "passive",
}


def figure_7(
    cells: Cells,
    *,
    hardware: str,
    model: Mapping[str, Any],
    scaling: Mapping[str, Any],
    steps: int,
    validate_every: int,
    validation_batches: int,
    budget_fraction: float,
    policies: Sequence[str],
) -> Result:
    """Labels are policies; the unlimited run is computed first, and everything compared with it."""
    settings = StabilitySettings(
        steps=steps,
        validate_every=validate_every,
        validation_batches=validation_batches,
        budget_fraction=budget_fraction,
        scaling=ScalingConf(**scaling),
        hardware=HardwareConf(file=hardware),
        model=GptConf(**model),
    )
    world = World(DeviceKind.sim, cells.hardware(hardware))
    cells.total(1 + len(policies))
    runs: dict[str, Run | None] = {}
    for name in (Policy.unlimited.value, *policies):
        reference = runs.get(Policy.unlimited.value)
        budget = None if reference is None else int(budget_fraction * reference.peak_bytes)
        raw = cells.get({"policy": name}, _trained, Policy[name], settings, world, budget)
        runs[name] = None if raw is None else _run(raw)
    reference = runs.pop(Policy.unlimited.value)
    if reference is None:
        return Result(series=())
    return Result(series=tuple(_series(runs, reference, steps)), notes=tuple(_notes(runs, reference)))


def _trained(policy: Policy, settings: StabilitySettings, world: World, budget_bytes: int | None) -> dict[str, Any]:
    import torch

    torch.set_num_threads(1)  # before the first backward pass, whose thread keeps what it finds
    run = execute(policy, settings, world, budget_bytes, Progress(save=lambda entries: None, tell=lambda text: None))
    return {"run": run_to_raw(run), "entries": [list(entry) for entry in run.entries]}


def _run(raw: Mapping[str, Any]) -> Run:
    return run_from_raw(raw["run"], tuple(Entry(*entry) for entry in raw["entries"]))


def _series(runs: Mapping[str, Run | None], reference: Run, steps: int) -> list[Series]:
    known = {name: run for name, run in runs.items() if run is not None}
    failed: dict[str, Value] = dict.fromkeys(name for name in runs if name not in known)
    series = [
        Series(name="losses equal to the unlimited run's", unit="%", points=failed | _equal(known, reference, steps)),
        Series(name="parameters equal", unit="", points=failed | _same_parameters(known, reference)),
        Series(name="ends at step", unit="", points=failed | {name: _end(run) for name, run in known.items()}),
        Series(name="how it ends", unit="", points=failed | {name: _how(run) for name, run in known.items()}),
        Series(name="step over unlimited", unit="x", points=failed | _ratios(known, reference)),
        Series(name="peak over unlimited", unit="x", points=failed | _peaks(known, reference)),
        Series(name="skipped steps", unit="", points={Policy.unlimited.value: float(reference.skipped)}),
        Series(name="validations", unit="", points={Policy.unlimited.value: float(len(reference.validations))}),
    ]
    sessions = {name: run.session for name, run in known.items() if run.session is not None}
    for name, count in COUNTED.items():
        series.append(Series(name=name, unit="", points={one: float(found[count]) for one, found in sessions.items()}))
    shares = {one: _in_time(found) for one, found in sessions.items()}
    return [*series, Series(name="swaps brought back in time of all brought back", unit="%", points=shares)]


def _in_time(session: Mapping[str, Any]) -> Value:
    """Those that were there when their operator came, of all that a policy or an operator brought back."""
    back = session["in_time"] + session["fallbacks"]
    return 100 * session["in_time"] / back if back else "nothing came back"


def _equal(runs: Mapping[str, Run], reference: Run, steps: int) -> dict[str, Value]:
    """Steps before the first difference, or the end, of all."""
    found: dict[str, Value] = {}
    for name, run in runs.items():
        different = run.first_difference(reference)
        found[name] = 100 * (len(run.entries) if different is None else different - 1) / steps
    return found


def _same_parameters(runs: Mapping[str, Run], reference: Run) -> dict[str, Value]:
    return {name: "yes" if run.equals(reference)["equal_parameters"] else "no" for name, run in runs.items()}


def _end(run: Run) -> Value:
    """The step at which it ended early; "never" where it did not."""
    return "never" if run.failed_at is None else float(run.failed_at)


def _how(run: Run) -> Value:
    if run.reason is None:
        return "to the end"
    return OUT_OF_MEMORY if run.out_of_memory else "crash"


def _ratios(runs: Mapping[str, Run], reference: Run) -> dict[str, Value]:
    whole = reference.mean_step_us
    return {
        name: run.mean_step_us / whole if run.mean_step_us and whole and run.reason is None else "ended early"
        for name, run in runs.items()
    }


def _peaks(runs: Mapping[str, Run], reference: Run) -> dict[str, Value]:
    return {name: run.peak_bytes / reference.peak_bytes for name, run in runs.items()}


def _notes(runs: Mapping[str, Run | None], reference: Run) -> list[str]:
    notes = [f"The unlimited run needs {reference.peak_bytes} bytes."]
    for name, run in runs.items():
        if run is not None and run.reason is not None:
            notes.append(f"{name} ends at step {run.failed_at}: {run.reason}")
    return notes
