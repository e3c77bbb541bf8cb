"""Training under one policy, from fresh weights to the last step or to what ended it."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, cast

import torch

from experiments.models import GptShape
from experiments.outcomes import make_model
from experiments.stability.record import Entry, Run, digest
from experiments.stability.settings import Policy, StabilitySettings
from experiments.stability.training import Trainer
from experiments.worlds import World
from runtime.device import clock, memory_stats
from runtime.swap import Session, SessionReport, StageSettings, session
from solvers.ir import InvalidInput
from solvers.ir.sentences import one_line

SESSIONS: dict[Policy, dict[str, Any]] = {
    Policy.features: {},
    Policy.forgets: {"stages": StageSettings(remembered=0)},
    Policy.index_guard: {"matching": "index"},
    Policy.features_alone: {"guard": False},
    Policy.index: {"matching": "index", "guard": False},
}
"""How a policy's session differs from a plain one."""
SHOWN = ("matched", "unmatched", "swapped_out", "in_time", "fetched", "cancelled", "passive", "relieved", "failed")
"""The counts of a session that rows keep."""


@dataclass
class Progress:
    """What a run has done so far; `save` is called with the entries now and then, and at the end."""

    save: Callable[[list[Entry]], None]
    tell: Callable[[str], None]
    entries: list[Entry] = field(default_factory=list)
    peak_bytes: int = 0
    parameters: str | None = None
    session: dict[str, Any] | None = None


def execute(
    policy: Policy, settings: StabilitySettings, world: World, budget_bytes: int | None, progress: Progress
) -> Run:
    """Train under a policy; whatever ends it early is part of the answer, except Ctrl-C and bad input."""
    reason, out_of_memory = None, False
    try:
        _train(policy, settings, world, budget_bytes, progress)
    except InvalidInput:
        raise
    except torch.OutOfMemoryError as error:
        reason, out_of_memory = one_line(error), True
    except Exception as error:  # a crash is what this experiment is about: any kind of it is an outcome
        reason = f"{type(error).__name__}: {one_line(error)}"
    finally:
        progress.save(progress.entries)
    return Run(
        policy=policy,
        entries=tuple(progress.entries),
        peak_bytes=progress.peak_bytes,
        parameters=progress.parameters,
        out_of_memory=out_of_memory,
        reason=reason,
        failed_at=None if reason is None else len(progress.entries) + 1,
        session=progress.session,
    )


def _train(
    policy: Policy, settings: StabilitySettings, world: World, budget_bytes: int | None, progress: Progress
) -> None:
    limited = policy in (Policy.none, Policy.recompute)
    device = world.open(budget_bytes if limited else None)
    shape = cast("GptShape", make_model(settings.model))
    try:
        trainer = Trainer(shape, settings.scaling, device, recompute=policy is Policy.recompute)
        with _session(policy, device, budget_bytes) as running:
            try:
                _steps(trainer, settings, device, progress)
            finally:
                progress.session = None if running is None else session_figures(running.report())
                progress.peak_bytes = memory_stats(device).peak_bytes
        progress.parameters = digest(trainer.parameters())
    finally:
        progress.peak_bytes = progress.peak_bytes or memory_stats(device).peak_bytes


@contextlib.contextmanager
def _session(policy: Policy, device: torch.device, budget_bytes: int | None) -> Iterator[Session | None]:
    """The session of a policy that has one."""
    if policy not in SESSIONS:
        yield None
        return
    with session(budget_bytes, device=device, **SESSIONS[policy]) as running:
        yield running


def _steps(trainer: Trainer, settings: StabilitySettings, device: torch.device, progress: Progress) -> None:
    """Step i is followed by a validation where `validate_every` divides i, as the next iteration's first part."""
    now_ns = clock(device)
    for number in range(1, settings.steps + 1):
        progress.tell(f"step {number} of {settings.steps}")
        began = now_ns()
        step = trainer.step(number - 1)
        entry = Entry(number, step.loss, None, step.skipped, step.scale, (now_ns() - began) / 1e3)
        progress.entries.append(entry)
        if number % settings.validate_every == 0:
            validation = trainer.validate(settings.validation_batches)
            progress.entries[-1] = entry._replace(validation=validation)
            progress.save(progress.entries)


def session_figures(report: SessionReport) -> dict[str, Any]:
    """What a row keeps of a session's report."""
    counts = asdict(report.counts)
    return {
        "generations": report.generations,
        "regenerations": report.regenerations,
        "returns": report.returns,
        "policies": len(report.policies),
        "kept": sum(policy.kept for policy in report.policies),
        "fallbacks": report.counts.fallbacks,
        "unswapped_peak_bytes": report.unswapped_peak_bytes,
        "host_peak_bytes": report.host_peak_bytes,
        "remarks": list(report.remarks),
        **{name: counts[name] for name in SHOWN},
    }
