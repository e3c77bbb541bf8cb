"""`milp-swap` on large problems beside the heuristics: gap, time to a bound, and who is beaten.

`python -m experiments.smartswap.scale --out FOLDER [--time 30] [--only NAME]` goes on behind the cells that FOLDER has.
"""

import argparse
import json
import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from solvers.ir.solution import Limits
from solvers.ir.swap import SwapProblem
from solvers.swap import CapuchinSwap, GreedySwap, MilpSwap
from solvers.swap.evaluate import instance
from solvers.swap.instances import llama2
from solvers.swap.irregular import Irregular
from solvers.swap.polish import Incumbent, offer_orders

SIZES = (500, 1000, 2000, 5000)
TENSORS_A_LAYER = 20
GB = 10**9
HEURISTICS = {"greedy": "greedy_us", "Capuchin": "capuchin_us", "prefetch": "prefetch_us"}


def _cases() -> Mapping[str, Callable[[], SwapProblem]]:
    """Problems by name: transformers on two links under two budgets, and four families that nobody tuned for."""
    cases: dict[str, Callable[[], SwapProblem]] = {}
    for size in SIZES:
        for share in (0.5, 0.3):
            for link in (24, 8):
                layers = size // TENSORS_A_LAYER
                cases[f"llama2, {size}, {share:g}, {link} GB/s"] = partial(llama2, layers, share, link * GB)
        for name, problem in (
            ("nested", Irregular(size, size, "nested")),
            ("random order", Irregular(size, size, "random")),
            ("crossing", Irregular(size, size, "crossing")),
            ("slow way back", Irregular(size, size, "nested", 0.2, 8 * GB, 4 * GB)),
            ("launch-bound", Irregular(size, size, "random", 0.1, 40 * GB, 40 * GB, launches=True)),
        ):
            cases[f"{name}, {size}"] = problem.build
    return cases


CASES = _cases()


def measure(problem: SwapProblem, time_s: float) -> dict[str, Any]:
    """One row: `milp-swap` for `time_s` on one thread, and what the heuristics and plain prefetching reach."""
    first: list[float] = []

    def watch(_: float | None, bound: float | None, elapsed_s: float) -> bool:
        if bound is not None and not first:
            first.append(elapsed_s)
        return False

    answer = MilpSwap().solve(problem, Limits(time_s=time_s, threads=1), watch)
    prefetch = Incumbent(given := instance(problem))
    offer_orders(given, prefetch)
    return {
        "ops": len(problem.ops),
        "base_us": answer.base,
        "objective_us": answer.objective,
        "bound_us": answer.bound,
        "gap": _rounded(answer.gap),
        "overhead_gap": _rounded(answer.overhead_gap),
        "first_bound_s": round(first[0], 2) if first else None,
        "time_s": round(answer.solve_time_s, 1),
        "greedy_us": GreedySwap().solve(problem, Limits(time_s=time_s)).objective,
        "capuchin_us": CapuchinSwap().solve(problem, Limits(time_s=time_s)).objective,
        "prefetch_us": None if prefetch.makespan is None else given.whole_us(prefetch.makespan),
        "load": round(os.getloadavg()[0], 1),
    }


def table(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """The rows as Markdown; the heuristics' steps as multiples of `milp-swap`'s."""
    heads = ("instance", "ops", "base (s)", "step (s)", "gap", "overhead gap", "first bound after (s)", *HEURISTICS)
    lines = [f"| {' | '.join(heads)} |", f"|---|{'---:|' * (len(heads) - 1)}"]
    for name, row in rows.items():
        beside = [_ratio(row[key], row["objective_us"]) for key in HEURISTICS.values()]
        overhead = "–" if row["overhead_gap"] is None else f"{row['overhead_gap']:.2%}"
        figures = [f"{row['base_us'] / 1e6:.3f}", f"{row['objective_us'] / 1e6:.3f}", f"{row['gap']:.2%}", overhead]
        lines.append(f"| {name} | {' | '.join([str(row['ops']), *figures, str(row['first_bound_s']), *beside])} |")
    return "\n".join(lines) + "\n"


def _rounded(share: float | None) -> float | None:
    return None if share is None else round(share, 6)


def _ratio(time_us: int | None, best_us: int) -> str:
    return "–" if time_us is None else f"{time_us / best_us:.3f}"


def main() -> None:
    """Compute the cells that are missing, and write `rows.json` and `table.md`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--time", type=float, default=30.0)
    parser.add_argument("--only", default="", help="names that contain this")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    place = asked.out / "rows.json"
    rows: dict[str, Any] = json.loads(place.read_text()) if place.exists() else {}
    for name, build in CASES.items():
        if name not in rows and asked.only in name:
            began = time.perf_counter()
            rows[name] = measure(build(), asked.time)
            print(f"{name}: gap {rows[name]['gap']:.2%}, {time.perf_counter() - began:.0f} s", flush=True)
            rows = {name: rows[name] for name in CASES if name in rows}
            place.write_text(json.dumps(rows, separators=(",", ":")) + "\n")
            (asked.out / "table.md").write_text(table(rows))


if __name__ == "__main__":
    main()
