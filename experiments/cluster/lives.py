"""Lives of a cluster: every policy meets the same failures, life by life, and what comes of it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from experiments.cluster.settings import ClusterSettings, make_grid, make_model
from solvers.ir import InvalidInput
from solvers.replan.cluster import (
    ClusterSetting,
    Failures,
    Policy,
    Progress,
    Repair,
    RunResult,
    Spread,
    campaign,
    ratio,
    read_trace,
    spread,
)

MICRO = 10**6
HOUR_S = 3600
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Lives:
    """All lives: for each policy its runs in the order of the seeds, the same seeds for every policy."""

    setting: ClusterSetting
    runs: Mapping[str, tuple[RunResult, ...]]

    @property
    def first(self) -> str:
        """The policy that the others are compared with."""
        return next(iter(self.runs))

    def throughputs(self, policy: str) -> list[float]:
        """Samples per second of each life (a microbatch is one sample)."""
        return [one.throughput for one in self.runs[policy]]

    def over(self, policy: str) -> Spread:
        """The first policy's throughput over this one's, life by life."""
        return ratio(self.throughputs(self.first), self.throughputs(policy))

    def over_on_average(self, policy: str) -> float:
        """The first policy's mean throughput over this one's."""
        return fmean(self.throughputs(self.first)) / fmean(self.throughputs(policy))


def make_setting(settings: ClusterSettings) -> ClusterSetting:
    """The cluster and the training on it; raises `InvalidInput` for values that contradict each other."""
    grid = make_grid(settings)
    microbatches = settings.microbatches * grid.data
    problem = make_model(settings).problem(depth=grid.depth, data=grid.data, microbatches=microbatches)
    return ClusterSetting(
        problem=msgspec.structs.replace(problem, data_parallel=None, nodes=grid.nodes + settings.spares),
        depth=grid.depth,
        data_parallel=grid.data,
        duration_us=round(settings.hours * HOUR_S * MICRO),
        failures_per_device_hour=settings.rate_per_h,
        tensor_parallel=settings.tensor,
        repair=None if settings.repair_h is None else Repair(mean_s=settings.repair_h * HOUR_S),
        restart_us=round(settings.restart_s * MICRO),
    )


def live(
    setting: ClusterSetting,
    policies: Mapping[str, Policy],
    seeds: Sequence[int],
    *,
    file: Path | None = None,
    workers: int = 1,
    tell: Callable[[Progress], None] | None = None,
) -> Lives:
    """All lives; with a `file`, those that it holds already are not lived again."""
    found = campaign(setting, policies, seeds, file=file, workers=workers, progress=tell)
    return Lives(setting, {name: tuple(found.of(name)) for name in policies})


def traced(settings: ClusterSettings, setting: ClusterSetting) -> Failures | None:
    """The failures of the trace; None without one. Raises `InvalidInput` naming a line that means nothing."""
    if settings.trace is None:
        return None
    return read_trace(Path(settings.trace), setting.problem.nodes, settings.start.value)


def live_through(setting: ClusterSetting, policies: Mapping[str, Policy], failures: Failures) -> Lives:
    """One life, whose failures and returns are given."""
    found = campaign(setting, policies, [0], workers=1, failures={0: failures})
    return Lives(setting, {name: tuple(found.of(name)) for name in policies})


def require_trained(settings: ClusterSettings, lives: Lives) -> None:
    """Raise `InvalidInput` where a policy never trains: nothing can be compared with it."""
    never = [name for name in lives.runs if not any(lives.throughputs(name))]
    if never:
        source = f"{settings.seeds} lives" if settings.trace is None else f"the trace {settings.trace}"
        raise InvalidInput(
            f"{', '.join(never)} never ended a step within the {settings.hours:g} h of {source}: nothing can be "
            "compared; raise hours, or let more nodes be present for longer"
        )


def figures_of(lives: Lives, policy: str) -> dict[str, Any]:
    """The figures of one policy over all lives; shares are of the whole time, counts are of one life, all means."""
    runs = lives.runs[policy]
    shares = {
        name: fmean(getattr(one, f"{name}_us") / one.duration_us for one in runs)
        for name in ("training", "lost", "transition", "stopped", "saving", "unfinished")
    }
    names = sorted({name for one in runs for name in one.decisions})
    decisions = [seconds for one in runs for seconds in one.decision_s]
    return {
        "samples_per_s": asdict(spread(lives.throughputs(policy))),
        "first_over": asdict(lives.over(policy)),
        "first_over_on_average": lives.over_on_average(policy),
        "shares": shares,
        "failures": fmean(one.failures for one in runs),
        "repairs": fmean(one.repairs for one in runs),
        "decisions": {name: fmean(one.decisions.get(name, 0) for one in runs) for name in names},
        "nodes_alive": fmean(one.mean_alive for one in runs),
        "decision_s": max(decisions, default=0.0),
    }


@dataclass(frozen=True)
class Curves:
    """Means and bands over time, by hour: nodes alive, nodes with a stage, and samples per second in each window."""

    hours: Floats
    alive: Floats
    staged: Floats
    samples_per_s: Floats

    def band(self, what: str, share: float) -> Floats:
        """A quantile over the lives."""
        return np.asarray(np.quantile(getattr(self, what), share, axis=0), dtype=np.float64)

    def mean(self, what: str) -> Floats:
        """The mean over the lives."""
        return np.asarray(getattr(self, what).mean(axis=0), dtype=np.float64)


def curves_of(lives: Lives, policy: str, windows: int) -> Curves:
    """One policy's curves, a row for each life."""
    edges = np.linspace(0.0, lives.setting.duration_us, windows + 1)
    middles = (edges[1:] + edges[:-1]) / 2
    runs = lives.runs[policy]
    batch = lives.setting.problem.microbatches
    return Curves(
        hours=middles / (HOUR_S * MICRO),
        alive=np.array([_alive(one, middles, "alive") for one in runs]),
        staged=np.array([_alive(one, middles, "staged") for one in runs]),
        samples_per_s=np.array([_rate(one, edges, batch) for one in runs]),
    )


def _alive(one: RunResult, times: Floats, what: str) -> Floats:
    starts = np.array([entry.at_us for entry in one.nodes])
    values = np.array([getattr(entry, what) for entry in one.nodes], dtype=np.float64)
    return np.asarray(values[np.searchsorted(starts, times, side="right") - 1])


def _rate(one: RunResult, edges: Floats, batch: int) -> Floats:
    """Samples per second in each window, from what was done until each moment; lost work is in it."""
    moments, done = [0.0], [0.0]
    for span in one.spans:
        gained = batch * (span.end_us - span.start_us) / span.step_us if span.step_us else 0.0
        moments += [span.start_us, span.end_us]
        done += [done[-1], done[-1] + gained]
    until = np.interp(edges, moments, done)
    return np.asarray(np.diff(until) / (np.diff(edges) / MICRO))
