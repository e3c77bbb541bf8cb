"""Rows of model T (README) for what a recomputation needs while it runs, made where a solution breaks them."""

import time
from collections.abc import Iterator
from itertools import combinations

import msgspec

from solvers.ir.solution import Limits
from solvers.joint.asked import solved
from solvers.joint.moment import Row
from solvers.joint.stretch import PIECES, Stretch, StretchProof

ROUNDS, ADDED = 2, 1500
"""How often rows that a solution breaks are added and the model is solved again, and how many at most each time."""
SHOWN = 1e-4
"""What a solution does less than this of, it does not do."""
BROKEN = 1e-3
"""By how much of its largest weight a row is broken at least to be added."""


def proof(stretch: Stretch, limits: Limits, engine: str) -> StretchProof | None:
    """The best prices of the stretch's rows, and of those that its solutions break; None where an engine finds none."""
    best: StretchProof | None = None
    known, deadline = {row.key for row in stretch.rows}, time.perf_counter() + limits.time_s
    for number in range(ROUNDS + 1):
        left = deadline - time.perf_counter()
        if left <= 0:
            break
        answer = solved(stretch.model(), msgspec.structs.replace(limits, time_s=left), engine)
        if answer.row_duals is None or answer.x is None:
            break
        found = StretchProof(stretch.first, stretch.last, (stretch.leaf(answer.row_duals, {}),))
        best = found if best is None or found.late > best.late else best
        added = broken(stretch, stretch.values(answer.x), known) if number < ROUNDS else []
        if not added:
            break
        stretch.rows += added
        known |= {row.key for row in added}
    return best


def broken(stretch: Stretch, values: dict[str, float], known: set[str]) -> list[Row]:
    """The rows that a solution breaks, the most broken first."""
    found: dict[str, tuple[float, Row]] = {}
    for q in stretch.stages[1:]:
        again = {i: values.get(f"again/{i}/{q}", 0.0) for i in range(q)}
        for i in (i for i in stretch.items if again.get(i, 0.0) > SHOWN):
            for row in (*_jams(stretch, i, q, again), *_beside(stretch, i, q)):
                over = sum(weight * values.get(key, 0.0) for key, weight in row.weights.items()) - row.side
                over /= max([1, *map(abs, row.weights.values())])
                if over > BROKEN and row.key not in known:
                    found[row.key] = -over, row
    return [row for _, row in sorted(found.values(), key=lambda pair: (pair[0], pair[1].key))[:ADDED]]


def _free(stretch: Stretch, i: int, q: int) -> int:
    """What is left at most while op i runs again in stage q."""
    workspace = stretch.given.workspace
    usage = stretch.bytes_of(stretch.need(i)) + workspace[i]
    return stretch.whole - usage - (stretch.size[q] + workspace[q]) * stretch.comm[q]


def _jams(stretch: Stretch, i: int, q: int, again: dict[int, float]) -> Iterator[Row]:
    """Op i does not run again beside one or two outputs that an op behind it in the stage reads, and nobody makes.

    Those that may be broken by a solution, which runs so much of each op `again`.
    """
    free, size = _free(stretch, i, q), stretch.size
    for k in (*(k for k in stretch.items if i < k < q), q):
        over = again[i] - BROKEN + (again[k] - 1 if k < q else 0)
        if over <= 0:
            continue
        made = {j: again[j] if j > i else 0.0 for j in stretch.inputs[k] | stretch.inputs[q]}
        read = sorted(j for j in made if made[j] < over and size[j] and j not in stretch.need(i))
        beside: list[set[int]] = [{j} for j in read if size[j] > free]
        small = [j for j in read if size[j] <= free]
        beside += [{a, b} for a, b in combinations(small, 2) if size[a] + size[b] > free and made[a] + made[b] < over]
        for outputs in beside:
            if k == q or not outputs <= stretch.inputs[q]:
                yield _jam(stretch, (i, k, q), outputs)


def _jam(stretch: Stretch, place: tuple[int, int, int], outputs: set[int]) -> Row:
    i, k, q = place
    weights = {f"again/{i}/{q}": 1} | ({f"again/{k}/{q}": 1} if k < q else {})
    for j in outputs:
        if j > i:
            stretch.runs(j, q)
            weights[f"again/{j}/{q}"] = weights.get(f"again/{j}/{q}", 0) - 1
    key = f"jam/{i}/{k}/{q}/{min(outputs)}/{max(outputs)}"
    return stretch.row(key, int(k < q), weights, is_upper=True)


def _beside(stretch: Stretch, i: int, q: int) -> Iterator[Row]:
    """While op i runs again, what op q reads and what stays fits beside it: in bytes and in whole pieces."""
    mine, size = stretch.need(i), stretch.size
    free = max(-1, _free(stretch, i, q) - sum(size[j] for j in stretch.inputs[q] - mine if j < i))
    kept = [j for j in stretch.items if j < i and j not in mine | stretch.need(q) and f"keep/{j}/{q}" in stretch.upper]
    later = [j for j in stretch.inputs[q] - mine if j > i]
    sizes = {size[j] for j in (*kept, *later) if size[j]}
    for grain in sorted({1, free + 1, free // 2 + 1, *sorted(sizes)[-PIECES:]} - {0}):
        most, pieces = stretch.room[q] // grain, {j: size[j] // grain for j in later}
        weights = {f"keep/{j}/{q}": size[j] // grain for j in kept}
        for j, count in pieces.items():
            if count:
                stretch.runs(j, q)
                weights[f"again/{j}/{q}"] = -count
        weights[f"again/{i}/{q}"] = most + sum(pieces.values()) - free // grain
        yield stretch.row(f"beside/{grain}/{i}/{q}", most, weights, is_upper=True)
