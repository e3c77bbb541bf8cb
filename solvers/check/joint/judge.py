"""Judge of `joint` decisions: the recursion of recompute-graph with what leaves and returns (formats.md 14.1 to 14.5).

What both kinds share word for word is the judge's of that kind; times are followed in `clock.py`.
"""

from collections import defaultdict
from dataclasses import dataclass
from itertools import accumulate

from solvers.check.joint.clock import Entry, end_us
from solvers.check.recompute_graph.judge import Sets, add_runs, by_stage, carried, form, reads, replays, windows
from solvers.check.verdict import Verdict
from solvers.ir.joint import JointPlan, JointProblem


def judge_joint(problem: JointProblem, plan: JointPlan) -> Verdict:
    """The decision's violations, and its time where it has none."""
    count = len(problem.ops)
    violations, computed = by_stage("compute", plan.compute, count)
    more, kept = by_stage("keep", plan.keep, count)
    violations += [*more, *add_runs(kept, plan.keep_runs, count), *_places(problem, plan)]
    violations = violations or form(computed, kept) or _swaps(plan, computed, kept)
    if violations:
        return Verdict(tuple(violations))
    entries, violations = _entries(problem, plan, computed, kept)
    graph = problem.without_link()
    violations += [
        *replays(graph, computed),
        *reads(graph, computed, kept),
        *carried(computed, kept, _returned(plan, count)),
        *windows(graph, computed),
    ]
    peaks = _peaks(problem, computed, kept, plan)
    violations += [
        f"stage {t} has {peak} bytes in use, budget {problem.budget_bytes}"
        for t, peak in enumerate(peaks)
        if peak > problem.budget_bytes
    ]
    violations += _host(problem, entries)
    if violations:
        return Verdict(tuple(violations))
    return Verdict((), end_us(problem, computed, peaks, entries))


@dataclass(frozen=True)
class Peak:
    """The most bytes in use, in which stage, and which op ran then (an earlier one: again)."""

    bytes: int
    stage: int
    op: int


def peak_of(problem: JointProblem, plan: JointPlan) -> Peak | None:
    """Where a decision's memory is fullest; None where it is none, because it names what is not there."""
    count = len(problem.ops)
    violations, computed = by_stage("compute", plan.compute, count)
    more, kept = by_stage("keep", plan.keep, count)
    if [*violations, *more, *add_runs(kept, plan.keep_runs, count), *_places(problem, plan)]:
        return None
    found = _fullest(problem, computed, kept, plan)
    stage = max(range(count), key=lambda t: found[t][0])
    return Peak(found[stage][0], stage, found[stage][1])


def base_us(problem: JointProblem) -> int:
    """The objective with unlimited memory: each op once, nothing swapped."""
    end = host = 0
    for op in problem.ops:
        host += op.launch_us
        end = max(end + op.time_us, host + op.after_launch_us)
        host = max(host, end) if op.host_waits else host
        end = max(end, host) + op.sent_us if op.sent_us else end
        host = max(host, end) if op.sync else host
        end, host = (max(end, host) + op.read_us,) * 2 if op.read_us else (end, host)
    return end


def least_budget_bytes(problem: JointProblem) -> int:
    """14.10: what an op needs beside its inputs, at the most demanding one."""
    return problem.static_bytes + max(
        op.workspace_bytes + sum(problem.ops[i].output_bytes for i in {t, *op.inputs})
        for t, op in enumerate(problem.ops)
    )


def known_least_budget(problem: JointProblem) -> tuple[int, int]:
    """At least and at most what the least feasible budget is; exact unless the host is limited."""
    least = least_budget_bytes(problem)
    if problem.host_budget_bytes is None:
        return least, least
    return least, max(least, *_peaks(problem, *_once(problem), JointPlan(compute=())))


def is_feasible(problem: JointProblem) -> bool:
    """Whether some decision surely keeps the budget: to swap all that is not in use, or to keep everything."""
    least = known_least_budget(problem)
    return problem.budget_bytes >= least[1]


def _once(problem: JointProblem) -> tuple[Sets, Sets]:
    """R and S where everything runs once and is kept until its last reader."""
    last = list(range(len(problem.ops)))
    for t, op in enumerate(problem.ops):
        for i in op.inputs:
            last[i] = t
    computed: Sets = [{t} for t in range(len(problem.ops))]
    return computed, [{i for i in range(t) if last[i] >= t} for t in range(len(problem.ops))]


def _places(problem: JointProblem, plan: JointPlan) -> list[str]:
    """Entries name ops and stages that there are, and t < k."""
    count, violations = len(problem.ops), []
    for number, swap in enumerate(plan.swap):
        place = f"swap[{number}]: op {swap.op}"
        if max(swap.op, swap.out_after, swap.in_at) >= count:
            violations.append(
                f"{place} leaves after stage {swap.out_after} and returns at {swap.in_at}, but stages "
                f"and ops are 0…{count - 1}"
            )
        elif swap.out_after >= swap.in_at:
            violations.append(
                f"{place} returns at stage {swap.in_at}, not after stage {swap.out_after}, when it leaves"
            )
    return violations


def _swaps(plan: JointPlan, computed: Sets, kept: Sets) -> list[str]:
    """14.1: there when it leaves, kept when it returns, neither in between."""
    violations = []
    for number, swap in enumerate(plan.swap):
        i, place = swap.op, f"swap[{number}]: op {swap.op}"
        if i not in computed[swap.out_after] and i not in kept[swap.out_after]:
            violations.append(f"{place} leaves after stage {swap.out_after}, which neither keeps nor computes it")
        if i not in kept[swap.in_at]:
            violations.append(f"{place} returns at stage {swap.in_at}, which does not keep it")
        violations += [
            f"{place} is away in stage {s}, which {'keeps' if i in kept[s] else 'computes'} it"
            for s in range(swap.out_after + 1, swap.in_at)
            if i in kept[s] or i in computed[s]
        ]
    return violations


def _returned(plan: JointPlan, count: int) -> Sets:
    returned: Sets = [set() for _ in range(count)]
    for swap in plan.swap:
        returned[swap.in_at].add(swap.op)
    return returned


def _entries(problem: JointProblem, plan: JointPlan, computed: Sets, kept: Sets) -> tuple[list[Entry], list[str]]:
    """14.3: each entry with its first reader; what returns and is not read, or leaves before, is a violation."""
    entries, violations = [], []
    read: set[tuple[int, int]] = set()
    for number, swap in enumerate(plan.swap):
        reader, place = swap.in_at, f"swap[{number}]: op {swap.op}"
        while reader < len(kept) and swap.op in kept[reader]:
            if any(swap.op in problem.ops[i].inputs for i in computed[reader]):
                if (swap.op, reader) in read:
                    violations.append(f"{place} leaves a second time before stage {reader} reads it")
                entries.append(Entry(swap.op, swap.out_after, swap.in_at, reader))
                read.add((swap.op, reader))
                break
            reader += 1
        else:
            violations.append(f"{place} returns at stage {swap.in_at} and is gone before any op reads it")
    return entries, violations


def _peaks(problem: JointProblem, computed: Sets, kept: Sets, plan: JointPlan) -> list[int]:
    """14.4: the most in use in each stage, right after each allocation and before its frees."""
    return [peak for peak, _ in _fullest(problem, computed, kept, plan)]


def _fullest(problem: JointProblem, computed: Sets, kept: Sets, plan: JointPlan) -> list[tuple[int, int]]:
    """The most in use in each stage, and the op that was running then."""
    users: dict[int, list[int]] = defaultdict(list)
    for i, op in enumerate(problem.ops):
        for j in set(op.inputs):
            users[j].append(i)
    staying: Sets = [set(held) for held in [*kept[1:], set()]]  # what stage t does not free
    for swap in plan.swap:
        staying[swap.out_after].add(swap.op)
    peaks = []
    for t, run in enumerate(computed):
        level = problem.static_bytes + sum(problem.ops[i].output_bytes for i in kept[t])
        peak = level, t
        for i in sorted(run):
            op = problem.ops[i]
            level += op.output_bytes
            own = problem.ops[t]  # as communication it runs, and has its memory, from the stage's beginning
            window = own.output_bytes + own.workspace_bytes if own.comm and i < t else 0
            used = level + window + op.workspace_bytes
            peak = (used, i) if used > peak[0] else peak
            for d in {*op.inputs, i}:
                if d not in staying[t] and not any(j > i and j in run for j in users[d]):
                    level -= problem.ops[d].output_bytes
        peaks.append(peak)
    return peaks


def _host(problem: JointProblem, entries: list[Entry]) -> list[str]:
    """14.5: on the host from the end of stage `out_after` until the first reader begins."""
    if problem.host_budget_bytes is None:
        return []
    change = [0] * (len(problem.ops) + 1)
    for entry in entries:
        change[entry.out_after] += problem.ops[entry.op].output_bytes
        change[entry.reader] -= problem.ops[entry.op].output_bytes
    most = max(accumulate(change))
    if most <= problem.host_budget_bytes:
        return []
    return [f"the host holds {most} bytes of swapped outputs, host_budget_bytes {problem.host_budget_bytes}"]
