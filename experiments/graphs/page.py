"""The kept cells as a page: who is better on which graph, how far from the bound, what is proven, what it takes."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from experiments.graphs.race import QUICK_S, RIVAL_S, RIVALS, TIME_S, WORSE
from solvers.check.proof import NOTHING

Row = Mapping[str, Any]


def race_page(lines: Sequence[Row]) -> str:
    """The race, a line a graph, and above it how often `opt` was worse than the best rival."""
    solvers = ("opt", *RIVALS)
    worse = [line for line in lines if line["worse"] is not None and line["worse"] > 100 * WORSE]
    better = [line for line in lines if line["worse"] is not None and line["worse"] < -100 * WORSE]
    alone = [line for line in lines if line["worse"] is None and line["opt"] is not None]
    small = [line["rss_mib"] for line in lines if line["ops"] <= 200]
    families = sorted({line["family"] for line in lines})
    told = [
        f"{len(lines)} graphs of {len(families)} families ({', '.join(families)}).",
        f"`opt` in {QUICK_S:g} s ({TIME_S:g} s where that was worse) beside each rival in {RIVAL_S:g} s, one thread "
        "each, one after another.",
        "",
        f"Worse than the best rival by more than {WORSE:.1%} of the base: {len(worse)}"
        + (f" ({', '.join(line['graph'] for line in worse)})" if worse else "")
        + f"; better by more than that: {len(better)}; the only one with a plan: {len(alone)}.",
        f"Memory of the process and its children up to 200 operators, at most: {max(small, default=0)} MiB.",
        f"`opt`'s claims proven by the judge: {sum(line['proven'] for line in lines)} of {len(lines)}.",
        "",
        "Overhead over the base in %:",
        "",
        _head(("graph", "ops", "bound", *solvers, "to the best rival", "s", "MiB")),
    ]
    told += [
        _line((line["graph"], line["ops"], _two(line["bound"]), *(_two(line[name]) for name in solvers),
               _signed(line["worse"]), line["wall_s"], line["rss_mib"]))
        for line in lines
    ]  # fmt: skip
    return "\n".join([*told, ""])


def gap_page(rows: Iterable[Row], label: str) -> str:
    """Answers of `opt`: status, overhead, gaps, seconds, memory, and whether the judge proves the claim.

    CPU seconds are those of the process and its children, its start and the judge included.
    """
    rows = list(rows)
    gaps = [100 * row["overhead_gap"] for row in rows if row["overhead_gap"] is not None]
    told = [
        f"Overhead gap: median {_two(median(gaps) if gaps else None)} %, largest {_two(max(gaps, default=None))} %, "
        f"of {len(rows)}; claims proven by the judge: {sum(row['proven'] for row in rows)}.",
        "",
        _head((label, "ops", "status", "overhead %", "bound %", "gap %", "overhead gap %", "s", "CPU s", "MiB")),
    ]
    for row in rows:
        told.append(_line((
            row["label"], row["ops"], row["status"], _over(row, "objective"), _over(row, "bound"),
            _two(None if row["gap"] is None else 100 * row["gap"]),
            _two(None if row["overhead_gap"] is None else 100 * row["overhead_gap"]), row["wall_s"],
            row.get("cpu_s", "–"), row["rss_mib"],
        )))  # fmt: skip
    return "\n".join([*told, ""])


def tiny_page(rows: Sequence[Row]) -> str:
    """How often `opt` met the optimum of tiny graphs."""
    feasible = [row for row in rows if row["optimum"] is not None]
    met = sum(row["objective"] == row["optimum"] for row in feasible)
    unknown = sum(row["status"] == "unknown" for row in rows)
    impossible = [row for row in rows if row["optimum"] is None]
    told = sum(row["status"] == "infeasible" for row in impossible)
    said = sum(row["status"] == "optimal" for row in feasible)
    return "\n".join([
        f"{len(feasible)} feasible graphs of {min(row['ops'] for row in rows)} to {max(row['ops'] for row in rows)} "
        f"operators: the optimum of `opt-milp` met by {met}, called optimal with a proof {said}; UNKNOWN {unknown}.",
        f"{len(impossible)} infeasible ones: called so {told}. Claims proven by the judge: "
        f"{sum(row['proven'] for row in rows)} of {len(rows)}.",
        "",
    ])  # fmt: skip


def pairs_page(rows: Sequence[Row]) -> str:
    """Which answers with the same work differ where other processes take the machine's time."""
    told = [
        f"{len(rows)} pairs of answers with the same `--work` and seed, the second beside processes that only burn "
        f"time: {sum(row['same'] for row in rows)} the same in everything but the time.",
        "",
        _head(("solver", "instance", "work", "status", "same", "s", "s beside others")),
    ]
    for row in rows:
        told.append(_line((
            row["solver"], row["instance"], row["work"], row["status"], "yes" if row["same"] else "no",
            row["calm_s"], row["busy_s"],
        )))  # fmt: skip
    return "\n".join([*told, ""])


def shares_page(rows: Sequence[Row]) -> str:
    """Of each kind, how many claims the judge proves; then each claim."""
    told = ["What a solver claims of instances, shipped and drawn at random, and what the judge proves of it.", ""]
    told.append(_head(("kind", "solver", "shipped: proven of claimed", "drawn: proven of claimed")))
    for kind in sorted({row["kind"] for row in rows}):
        some = [row for row in rows if row["kind"] == kind]
        solvers = ", ".join(sorted({row["solver"] for row in some}))
        told.append(_line((kind, solvers, *(_proven(some, drawn) for drawn in (False, True)))))
    told += ["", _head(("instance", "status", "claim", "s"))]
    told += [_line((row["instance"], row["status"], row["claim"], row["spent_s"])) for row in rows]
    return "\n".join([*told, ""])


def _proven(rows: Sequence[Row], drawn: bool) -> str:
    claims = [row["proven"] for row in rows if row["drawn"] is drawn and row["claim"] != NOTHING]
    return f"{sum(claims)} of {len(claims)}"


def _over(row: Row, key: str) -> str:
    return _two(None if row[key] is None or not row["base"] else 100 * (row[key] - row["base"]) / row["base"])


def _head(names: Sequence[str]) -> str:
    return _line(names) + "\n" + "|---" * len(names) + "|"


def _line(cells: Sequence[object]) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"


def _two(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _signed(value: float | None) -> str:
    return "–" if value is None else f"{value:+.2f}"
