"""Judge of `recompute-layer` decisions: Lynx-HEU's constraints as corrected (formats.md 5)."""

from solvers.check.verdict import Verdict
from solvers.ir.recompute import LayerGroup, RecomputeLayerPlan, RecomputeLayerProblem
from solvers.ir.sentences import quoted


def judge_recompute_layer(problem: RecomputeLayerProblem, plan: RecomputeLayerPlan) -> Verdict:
    """The decision's violations, and the recomputation time on the critical path where it has none."""
    violations = []
    total = sum(group.layers for group in plan.groups)
    if total != problem.layers:
        violations.append(f"groups hold {total} layers, but the problem has {problem.layers}")
    for number, group in enumerate(plan.groups):
        place = f"groups[{number}]"
        form = _form(problem, group, place)
        violations += form or [*_coverage(problem, group, place), *_windows(problem, group, place)]
    if not violations:
        needed, limit = _memory_bytes(problem, plan), problem.budget_bytes - problem.static_bytes
        if needed > limit:
            violations.append(f"the groups need {needed} bytes, but budget − static leaves {limit}")
    if violations:
        return Verdict(tuple(violations))
    return Verdict((), _objective_us(problem, plan))


def _objective_us(problem: RecomputeLayerProblem, plan: RecomputeLayerPlan) -> int:
    """Time on the critical path; for the last layer that in backward windows, too, where it has none (5.4)."""
    total = sum(group.layers * _time_us(problem, group, len(problem.windows)) for group in plan.groups)
    if problem.last_windowless:
        backward = [w for w, window in enumerate(problem.windows) if window.phase == "backward"]
        total += sum(_time_us(problem, plan.groups[-1], w) for w in backward)
    return total


def base_us(problem: RecomputeLayerProblem) -> int:
    """The objective with unlimited memory: nothing is recomputed."""
    return 0


def _form(problem: RecomputeLayerProblem, group: LayerGroup, place: str) -> list[str]:
    """Indices in range; every op at most once, stored or recomputed."""
    violations = [] if group.layers >= 1 else [f"{place} has {group.layers} layers, but at least 1 is needed"]
    count, critical = len(problem.ops), len(problem.windows)
    seen: set[int] = set()
    for i in (*group.stored, *(i for i, _ in group.recomputed)):
        if not 0 <= i < count:
            violations.append(f"{place} names op {i}, but ops are 0…{count - 1}")
        elif i in seen:
            violations.append(f"{place} names op {i} twice, but an op is stored or recomputed at most once")
        seen.add(i)
    for i, w in group.recomputed:
        if not 0 <= w <= critical:
            violations.append(f"{place} recomputes op {i} in window {w}, but windows are 0…{critical} (critical path)")
    return violations


def _coverage(problem: RecomputeLayerProblem, group: LayerGroup, place: str) -> list[str]:
    """Needed ops are there; a recomputed op's inputs are stored, or recomputed no later than it."""
    when = dict(group.recomputed)
    stored = set(group.stored)
    violations = [
        f"{place} neither stores nor recomputes op {i} ({quoted(op.name)}), which a backward op reads"
        for i, op in enumerate(problem.ops)
        if op.needed and i not in stored and i not in when
    ]
    for i, w in group.recomputed:
        for j in sorted(set(problem.ops[i].inputs) - stored):
            if j not in when:
                violations.append(
                    f"{place} recomputes op {i} in window {w}, but its input {j} is neither stored nor recomputed"
                )
            elif when[j] > w:
                violations.append(
                    f"{place} recomputes op {i} in window {w}, but its input {j} only in window {when[j]}"
                )
    return violations


def _windows(problem: RecomputeLayerProblem, group: LayerGroup, place: str) -> list[str]:
    """No communication and no more time than the window has; none in a forward window of the last stage."""
    violations = []
    for w, window in enumerate(problem.windows):
        inside = [i for i, at in group.recomputed if at == w]
        where = f"window {w} ({quoted(window.name)})"
        violations += [f"{place} recomputes op {i}, a communication, in {where}" for i in inside if problem.ops[i].comm]
        used = _time_us(problem, group, w)
        if used > window.time_us:
            violations.append(f"{place} recomputes for {used} us in {where}, which has {window.time_us} us")
        if inside and window.phase == "forward" and problem.last_stage:
            violations.append(f"{place} recomputes op {inside[0]} in {where}, a forward window of the last stage")
    return violations


def _time_us(problem: RecomputeLayerProblem, group: LayerGroup, window: int) -> int:
    return sum(problem.ops[i].time_us for i, w in group.recomputed if w == window)


def _memory_bytes(problem: RecomputeLayerProblem, plan: RecomputeLayerPlan) -> int:
    """inflight·(layers·input + Σ n·stored) + Σ n·forward + max over groups (2·backward or stall + critical path)."""
    size = [op.output_bytes for op in problem.ops]
    again = size if problem.again_bytes is None else list(problem.again_bytes)
    critical = len(problem.windows)
    stored = forward = working = 0
    for group in plan.groups:
        phase = [(i, "critical" if w == critical else problem.windows[w].phase) for i, w in group.recomputed]
        stored += group.layers * sum(size[i] for i in group.stored)
        forward += group.layers * sum(size[i] for i, at in phase if at == "forward")
        hidden = sum(again[i] for i, at in phase if at in ("backward", "stall"))
        working = max(working, 2 * hidden + sum(again[i] for i, at in phase if at == "critical"))
    return problem.inflight_microbatches * (problem.layers * problem.layer_input_bytes + stored) + forward + working
