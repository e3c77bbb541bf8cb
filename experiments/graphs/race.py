"""`opt` against the room's other solvers on graphs that nobody tuned anything for, on the same thread."""

from collections.abc import Iterator, Sequence
from typing import Any

from experiments.graphs.cell import Asked
from experiments.graphs.names import family_of
from experiments.graphs.store import Store

RIVALS = ("opt-intervals", "opt-milp", "checkmate")
TIME_S, QUICK_S, RIVAL_S = 30.0, 20.0, 15.0
"""What `opt` may have, what it is given first, and what each rival has; only where the first is not enough it has all
of it."""
WORSE = 0.001
"""How much dearer `opt`'s plan may be than a rival's, of the base."""
GRAPHS = (
    "tree-60-s0@.4", "layered-100-s0@.3", "wide-100-s1@.5", "unet3@.4", "transformer-100-s0@.5", "dense-100-s0@.5",
    "series-parallel-80-s0@.5", "nested-80-s0@.5", "recurrent-80-s0@.6", "vgg16@.3", "layered-100-s1@.6",
    "wide-150-s0@.4", "tree-120-s1@.3", "transformer-120-s1@.3", "dense-120-s1@.3", "series-parallel-120-s1@.3",
    "nested-120-s1@.7", "recurrent-120-s1@.4", "unet4@.5", "layered-150-s2@.5", "wide-200-s2@.6", "tree-200-s2@.6",
    "transformer-200-s2@.6", "dense-160-s2@.6", "series-parallel-200-s2@.6", "nested-160-s2@.4", "recurrent-200-s2@.3",
    "resnet26@.4", "layered-200-s3@.4", "wide-250-s3@.3", "transformer-260-s3@.4",
    "recurrent-300-s3@.5", "unet5@.6", "layered-300-s4@.3",
    "wide-300-s4@.7", "tree-340-s4@.4", "transformer-340-s4@.7", "dense-300-s4@.7", "series-parallel-340-s4@.7",
    "nested-300-s4@.3", "recurrent-400-s4@.7", "resnet50@.5", "layered-400-s5@.6", "wide-400-s5@.5", "tree-420-s5@.7",
    "transformer-420-s5@.5", "dense-400-s5@.5", "series-parallel-420-s5@.5", "nested-400-s5@.5", "mobilenet-v2@.4",
    "layered-500-s6@.5", "wide-500-s6@.4", "recurrent-600-s5@.4", "tree-700-s6@.3", "series-parallel-700-s6@.6",
    "layered-700-s7@.4", "wide-700-s7@.6", "transformer-700-s6@.4", "layered-1000-s8@.5", "wide-1000-s8@.7",
)  # fmt: skip
"""60 graphs of 9 families, small ones first."""


def questions(graph: str, seed: int = 0) -> list[Asked]:
    """`opt`, then its rivals."""
    rivals = [Asked(graph=graph, solver=name, time_s=RIVAL_S, seed=seed) for name in RIVALS]
    return [Asked(graph=graph, solver="opt", time_s=QUICK_S, seed=seed), *rivals]


def race(store: Store, graphs: Sequence[str] = GRAPHS) -> Iterator[dict[str, Any]]:
    """A line of the page for each graph, as they come."""
    for graph in graphs:
        found = {asked.solver: store.get(asked) for asked in questions(graph)}
        first = line(graph, found)
        if first["worse"] is None or first["worse"] <= 100 * WORSE:
            yield first
        else:
            yield line(graph, {**found, "opt": store.get(Asked(graph=graph, solver="opt", time_s=TIME_S))})


def line(graph: str, rows: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Overheads in per cent of the base, and by how much the best rival's plan is cheaper (below 0: dearer)."""
    opt, base = rows["opt"], rows["opt"]["base"]

    def overhead(value: int | None) -> float | None:
        return None if value is None or not base else 100 * (value - base) / base

    found = {name: overhead(rows[name]["objective"]) for name in ("opt", *RIVALS)}
    best = min((value for name in RIVALS if (value := found[name]) is not None), default=None)
    worse = None if best is None else (float("inf") if found["opt"] is None else found["opt"] - best)
    return {
        "graph": graph, "family": family_of(graph), "ops": opt["ops"], **found, "bound": overhead(opt["bound"]),
        "worse": worse, "status": opt["status"], "wall_s": opt["wall_s"], "rss_mib": opt["rss_mib"],
        "proven": opt["proven"],
    }  # fmt: skip
