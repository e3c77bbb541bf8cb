"""Judge of `recompute-graph` decisions: the corrected stage model of Lynx-OPT (formats.md 4)."""

from collections import defaultdict

from solvers.check.verdict import Verdict
from solvers.ir.recompute import RecomputeGraphPlan, RecomputeGraphProblem

Sets = list[set[int]]
"""One set of op indices a stage."""


def judge_recompute_graph(problem: RecomputeGraphProblem, plan: RecomputeGraphPlan) -> Verdict:
    """The decision's violations, and its time where it has none."""
    count = len(problem.ops)
    violations, computed = by_stage("compute", plan.compute, count)
    more, kept = by_stage("keep", plan.keep, count)
    violations += [*more, *add_runs(kept, plan.keep_runs, count)]
    if not violations:
        violations = form(computed, kept)
    if not violations:
        violations = [
            *replays(problem, computed),
            *reads(problem, computed, kept),
            *carried(computed, kept),
            *windows(problem, computed),
            *_memory(problem, computed, kept),
        ]
    if violations:
        return Verdict(tuple(violations))
    again = sum(problem.ops[i].time_us for t in range(count) if not problem.ops[t].comm for i in computed[t] - {t})
    return Verdict((), base_us(problem) + again)


def base_us(problem: RecomputeGraphProblem) -> int:
    """The objective with unlimited memory: each op once."""
    return sum(op.time_us for op in problem.ops)


def by_stage(name: str, pairs: tuple[tuple[int, int], ...], count: int) -> tuple[list[str], Sets]:
    """One set of ops a stage, and what is wrong with the pairs."""
    violations = []
    found: Sets = [set() for _ in range(count)]
    for number, (t, i) in enumerate(pairs):
        if not (0 <= t < count and 0 <= i < count):
            violations.append(f"{name}[{number}] is [{t}, {i}], but stages and ops are 0…{count - 1}")
        elif i in found[t]:
            violations.append(f"{name}[{number}] lists [{t}, {i}] a second time")
        else:
            found[t].add(i)
    return violations, found


def add_runs(kept: Sets, runs: tuple[tuple[int, int, int], ...], count: int) -> list[str]:
    """The stages of `keep_runs`, added to `kept`: each once, and none that `keep` has listed."""
    for number, (i, first, last) in enumerate(runs):
        if not (0 <= i < count and 0 <= first <= last < count):
            return [f"keep_runs[{number}] is [{i}, {first}, {last}], but stages and ops are 0…{count - 1}, in order"]
        for t in range(first, last + 1):
            if i in kept[t]:
                return [f"keep_runs[{number}] keeps op {i} in stage {t} a second time"]
            kept[t].add(i)
    return []


def form(computed: Sets, kept: Sets) -> list[str]:
    """R[t,t] = 1; R[t,i] = 0 for i > t; S[t,i] = 0 for i ≥ t; R[t,i] + S[t,i] ≤ 1 for i < t."""
    violations = []
    for t, (run, held) in enumerate(zip(computed, kept, strict=True)):
        if t not in run:
            violations.append(f"stage {t} does not compute op {t}: compute must list [{t}, {t}]")
        violations += [f"stage {t} computes op {i}, whose first stage is {i}" for i in sorted(run) if i > t]
        violations += [f"stage {t} keeps op {i}, which no stage before {t} computes" for i in sorted(held) if i >= t]
        violations += [f"stage {t} both keeps and recomputes op {i}" for i in sorted(run & held) if i < t]
    return violations


def replays(problem: RecomputeGraphProblem, computed: Sets) -> list[str]:
    """R[t,i] = 0 for i < t where op i must not run twice, or t is before `replays_from`."""
    violations = []
    for t, run in enumerate(computed):
        for i in sorted(run - {t}):
            if not problem.ops[i].replay:
                violations.append(f"stage {t} recomputes op {i}, which must not run twice")
            if t < problem.replays_from:
                violations.append(f"stage {t} recomputes op {i}, but nothing runs again before {problem.replays_from}")
    return violations


def reads(problem: RecomputeGraphProblem, computed: Sets, kept: Sets) -> list[str]:
    """R[t,i] ≤ R[t,j] + S[t,j] for inputs j; a comm stage's own inputs kept."""
    violations = []
    for t, (run, held) in enumerate(zip(computed, kept, strict=True)):
        for i in sorted(run):
            own = problem.ops[t].comm and i == t
            present = held if own else run | held
            how = "kept at the start of its communication" if own else "kept or recomputed in that stage"
            violations += [
                f"stage {t} computes op {i}, whose input {j} is not {how}"
                for j in sorted(set(problem.ops[i].inputs) - present)
            ]
    return violations


def carried(computed: Sets, kept: Sets, returned: Sets | None = None) -> list[str]:
    """S[t,i] ≤ R[t−1,i] + S[t−1,i], but for what is `returned` to stage t from elsewhere."""
    violations = []
    for t in range(1, len(kept)):
        lost = kept[t] - computed[t - 1] - kept[t - 1] - (returned[t] if returned is not None else set())
        violations += [f"stage {t} keeps op {i}, which stage {t - 1} neither kept nor computed" for i in sorted(lost)]
    return violations


def windows(problem: RecomputeGraphProblem, computed: Sets) -> list[str]:
    """In a comm stage no comm op is recomputed, and the recomputation fits into the communication (4.4)."""
    violations = []
    for t, run in enumerate(computed):
        if problem.ops[t].comm:
            again = sorted(run - {t})
            comm = [i for i in again if problem.ops[i].comm]
            violations += [f"stage {t} recomputes op {i}, a communication, during a communication" for i in comm]
            used, limit = sum(problem.ops[i].time_us for i in again), problem.ops[t].time_us
            if used > limit:
                violations.append(f"stage {t} recomputes for {used} us during a communication of {limit} us")
    return violations


def _memory(problem: RecomputeGraphProblem, computed: Sets, kept: Sets) -> list[str]:
    """static + U ≤ budget right after each allocation and before its frees, a comm's output counted from its start."""
    users: dict[int, list[int]] = defaultdict(list)
    for i, op in enumerate(problem.ops):
        for j in set(op.inputs):
            users[j].append(i)
    violations = []
    for t, run in enumerate(computed):
        next_kept = kept[t + 1] if t + 1 < len(kept) else set()
        level = problem.static_bytes + sum(problem.ops[i].output_bytes for i in kept[t])
        for i in sorted(run):
            level += problem.ops[i].output_bytes
            window = problem.ops[t].output_bytes if problem.ops[t].comm and i < t else 0
            if level + window > problem.budget_bytes:
                needed = level + window
                violations.append(f"stage {t}, op {i} has {needed} bytes in use, budget {problem.budget_bytes}")
            for d in {*problem.ops[i].inputs, i}:
                if d not in next_kept and not any(j > i and j in run for j in users[d]):  # F[t, d, i] = 1
                    level -= problem.ops[d].output_bytes
    return violations
