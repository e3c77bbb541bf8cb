"""Throughput of Chameleon over the baselines through failures (§V-B), and what the assumptions decide."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from statistics import fmean
from typing import Any

import msgspec

from experiments.chameleon.entries import trained_in
from experiments.cluster.lives import Lives, live
from experiments.cluster.policies import policy_of
from experiments.cluster.settings import read_grid_text
from experiments.reproduction import Cells, Result, Series
from experiments.reproduction.result import Value
from solvers.replan.cluster import ClusterSetting

MICRO, HOUR_S = 10**6, 3600
Raw = Mapping[str, Any]
STATISTICS = ("p5", "p50", "p95", "mean", "low", "high")


def simulation(
    cells: Cells,
    *,
    model: str,
    hardware: str,
    cluster: Raw,
    policies: Mapping[str, Raw],
    worlds: Mapping[str, Raw],
    seeds: int,
    near: Mapping[str, float],
    tolerance: float,
) -> Result:
    """Labels are worlds; each changes settings of `cluster`, and of policies under their names.

    `near` holds a paper's ratios by policy: counted are the seeds within `tolerance` of each, and of all at once.
    """
    cells.total(len(worlds))
    found: dict[str, Raw | None] = {}
    for name, change in worlds.items():
        setting, chosen = _world(cells, model, hardware, cluster, policies, change)
        found[name] = cells.get({"world": name}, _lived, setting, chosen, seeds, near, tolerance)
    marks = [_mark(found, next(iter(policies)), name, ratio, tolerance) for name, ratio in near.items()]
    return Result(series=tuple(_series(found, list(policies))), notes=(f"{seeds} lives in each world.", *marks))


def _mark(found: Mapping[str, Raw | None], first: str, policy: str, ratio: float, tolerance: float) -> str:
    """In which worlds a paper's ratio lies near the mean, or among the lives."""
    over = {label: cell[policy]["over"] for label, cell in found.items() if cell is not None}
    near = [label for label, one in over.items() if abs(one["mean"] / ratio - 1) <= tolerance]
    among = [label for label, one in over.items() if label not in near and one["p5"] <= ratio <= one["p95"]]
    return (
        f"{ratio:g}, the paper's {first} over {policy}: within {100 * tolerance:g} % of the mean in "
        f"{_listed(near)}; elsewhere between the 5th and the 95th percentile in {_listed(among)}."
    )


def _listed(labels: Sequence[str]) -> str:
    return "; ".join(f"“{label}”" for label in labels) or "no world"


def _world(
    cells: Cells, model: str, hardware: str, cluster: Raw, policies: Mapping[str, Raw], change: Raw
) -> tuple[ClusterSetting, dict[str, Raw]]:
    """The setting and the policies' settings of one world; raises `InvalidInput` for what neither knows."""
    chosen: dict[str, Raw] = {name: {**raw, **change.get(name, {})} for name, raw in policies.items()}
    own = {**cluster, **{key: value for key, value in change.items() if key not in policies}}
    grid = read_grid_text(own.pop("grid"))
    trained = trained_in(cells, model, hardware, own.pop("gb_per_s"), layers=grid.layers, head=own.pop("head"))
    problem = trained.problem(depth=grid.depth, data=grid.data, microbatches=own.pop("batch"))
    setting = ClusterSetting(
        problem=msgspec.structs.replace(problem, data_parallel=None),
        depth=grid.depth,
        data_parallel=grid.data,
        duration_us=round(own.pop("hours") * HOUR_S * MICRO),
        failures_per_device_hour=own.pop("rate_per_h"),
        restart_us=round(own.pop("restart_s") * MICRO),
        **own,
    )
    return setting, chosen


def _lived(
    setting: ClusterSetting, policies: Mapping[str, Raw], seeds: int, near: Mapping[str, float], tolerance: float
) -> dict[str, Any]:
    """For each policy its samples per second and shares of time, and the first one's gain over it."""
    lives = live(setting, {name: policy_of(name, raw) for name, raw in policies.items()}, range(seeds))
    found: dict[str, Any] = {name: _figures(lives, name) for name in lives.runs}
    close = {name: _close(lives, name, ratio, tolerance) for name, ratio in near.items()}
    if close:
        close["all"] = [all(flags) for flags in zip(*close.values(), strict=True)]
    found["near"] = {name: 100 * fmean(flags) for name, flags in close.items()}
    return found


def _figures(lives: Lives, name: str) -> dict[str, Any]:
    over = lives.over(name)
    return {
        "samples_per_s": fmean(lives.throughputs(name)),
        "over": {key: value for key, value in asdict(over).items() if key in STATISTICS},
        "lost": 100
        * fmean((one.lost_us + one.transition_us + one.stopped_us) / one.duration_us for one in lives.runs[name]),
        "rerouted": fmean(one.decisions.get("reroute", 0) for one in lives.runs[name]),
        "replanned": fmean(one.decisions.get("replan", 0) for one in lives.runs[name]),
    }


def _over_fastest(cell: Raw, others: Sequence[str]) -> Value:
    """The first policy's gain over the one of the others that is fastest on average in this world."""
    gain: float = cell[max(others, key=lambda name: float(cell[name]["samples_per_s"]))]["over"]["mean"]
    return gain


def _close(lives: Lives, name: str, ratio: float, tolerance: float) -> list[bool]:
    pairs = zip(lives.throughputs(lives.first), lives.throughputs(name), strict=True)
    return [other > 0 and abs(one / other / ratio - 1) <= tolerance for one, other in pairs]


def _series(found: Mapping[str, Raw | None], policies: Sequence[str]) -> list[Series]:
    """Speeds of all policies, and the first one's gains over the others."""

    def curve(name: str, unit: str, *path: str) -> Series:
        points: dict[str, Value] = {}
        for label, cell in found.items():
            value: Any = cell
            for key in path:
                value = None if value is None else value[key]
            points[label] = value
        return Series(name=name, unit=unit, points=points)

    first, *others = policies
    series = [curve(f"samples/s, {name}", "", name, "samples_per_s") for name in policies]
    series += [curve(f"time without training, {name}", "%", name, "lost") for name in policies]
    for name in others:
        series += [curve(f"{first} over {name}, {key}", "x", name, "over", key) for key in STATISTICS]
    fastest = {label: None if cell is None else _over_fastest(cell, others) for label, cell in found.items()}
    series.append(Series(name=f"{first} over the fastest of the others, mean", unit="x", points=fastest))
    series += [curve(f"{what} by {first}", "", first, what) for what in ("rerouted", "replanned")]
    known = next((cell for cell in found.values() if cell is not None), None)
    near = [] if known is None else list(known["near"])
    return [*series, *(curve(f"lives near the paper's ratio, {name}", "%", "near", name) for name in near)]
