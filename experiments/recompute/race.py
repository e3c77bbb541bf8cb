"""One run: a model trained for some steps in one way, with each step's virtual time and peak."""

import gc
import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from experiments.recompute.models import MODELS, Build, Size
from experiments.recompute.ways import Way, ours, rivals
from runtime.device import clock, memory_stats
from runtime.recompute import RecomputeSession, plan

STEPS = 3
"""The first one is measured, then the optimizer's states are there; times and peaks are the largest of the others."""


@dataclass(frozen=True, kw_only=True)
class Ran:
    """What a run took; ratios are to plain training. `error` says why it did not, and the rest is None then.

    `predicted_step` and `predicted_peak_bytes` are the session's own, before it ran.
    """

    model: str
    way: str
    share: float | None = None
    step_us: float | None = None
    peak_bytes: int | None = None
    predicted_us: float | None = None
    predicted_peak_bytes: int | None = None
    least_bytes: int | None = None
    replanned: int | None = None
    error: str | None = None


def run(name: str, way: Way, size: Size, device: torch.device, plain: Ran | None = None, steps: int = STEPS) -> Ran:
    """A fresh model, trained so; whatever goes wrong is the row's error."""
    gc.collect()
    try:
        return _run(MODELS[name], name, way, size, device, plain, steps)
    except Exception as error:  # another library's, too: the others run on
        told = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        least = getattr(error, "least_budget_bytes", None)
        return Ran(model=name, way=way.name, share=way.share, error=told, least_bytes=least)


def _run(build: Build, name: str, way: Way, size: Size, device: torch.device, plain: Ran | None, steps: int) -> Ran:
    torch.manual_seed(0)
    trainee = build(size, device)
    optimizer = torch.optim.AdamW(trainee.model.parameters(), lr=1e-4, foreach=False)
    session: RecomputeSession | None = None
    if way.solver is not None:
        assert plain is not None and plain.peak_bytes is not None and way.share is not None
        session = plan(
            trainee.model, budget=int(way.share * plain.peak_bytes), solver=way.solver, blocks=trainee.blocks,
            parameters=way.parameters,
        )  # fmt: skip
    step, now_ns = _step(trainee.loss, optimizer), clock(device)
    taken: list[tuple[float, int]] = []
    around = nullcontext() if way.around is None else way.around(trainee.blocks)
    with around:
        for _ in range(steps):
            inside: AbstractContextManager[object] = nullcontext() if session is None else session
            torch.accelerator.reset_peak_memory_stats(device)
            began = now_ns()
            with inside:
                step()
                taken.append(((now_ns() - began) / 1e3, memory_stats(device).peak_bytes))
    report = None if session is None else session.report()
    return Ran(
        model=name,
        way=way.name,
        share=way.share,
        step_us=max(time for time, _ in taken[1:]),
        peak_bytes=max(peak for _, peak in taken[1:]),
        predicted_us=None if report is None or plain is None or plain.step_us is None
        else plain.step_us + report.exposed_us,
        predicted_peak_bytes=None if report is None else report.predicted_peak_bytes,
        replanned=None if report is None else report.replanned,
    )  # fmt: skip


def _step(loss: Callable[[], torch.Tensor], optimizer: torch.optim.Optimizer) -> Callable[[], None]:
    def step() -> None:
        optimizer.zero_grad()
        loss().backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step


def race(
    names: Sequence[str],
    size: Size,
    device: torch.device,
    into: Path,
    tell: Callable[[Ran], None],
    shares: Sequence[float],
    known: Sequence[Ran] = (),
) -> list[Ran]:
    """Every model in every way, a line of `into` each, written as they come.

    Of models with `known` rows only plain training and sessions run; their rivals' rows are those.
    """
    rows: list[Ran] = []
    with into.open("w") as file:
        for name in names:
            plain = run(name, Way("plain"), size, device)
            kept = [row for row in known if row.model == name and row.share is None and row.way != plain.way]
            others = [] if kept else rivals(len(MODELS[name](size, device).blocks))
            found = [plain]
            for way in [*ours(shares), *others]:
                found.append(run(name, way, size, device, plain, STEPS if way.solver else 2))
            found += kept
            for row in found:
                file.write(json.dumps(asdict(row), separators=(",", ":")) + "\n")
                tell(row)
            file.flush()
            rows += found
    return rows
