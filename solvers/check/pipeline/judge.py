"""Judge of `pipeline` decisions (formats.md 15): layers, every stage's policies and memory, the step."""

from collections.abc import Iterator

from solvers.check.pipeline.step import StageTimes, in_flight, step_us
from solvers.check.recompute_layer.judge import judge_recompute_layer
from solvers.check.verdict import Verdict
from solvers.ir.pipeline import PipelinePlan, PipelineProblem
from solvers.ir.recompute import LayerGroup, RecomputeLayerPlan, RecomputeLayerProblem


def judge_pipeline(problem: PipelineProblem, plan: PipelinePlan) -> Verdict:
    """The decision's violations, and the step's time where it has none."""
    violations = _shape(problem, plan)
    if not violations:
        violations = [fault for stage in range(len(plan.layers)) for fault in _stage(problem, plan, stage)]
    if violations:
        return Verdict(tuple(violations))
    stages = [times_of(problem, plan, stage) for stage in range(len(plan.layers))]
    return Verdict((), step_us(stages, problem.microbatches, problem.order, problem.p2p_us, plan.hide_in_stalls))


def _shape(problem: PipelineProblem, plan: PipelinePlan) -> list[str]:
    """15.1: a number of layers and policies for each stage, every layer once."""
    depth = len(problem.stages)
    for name, given in (("layers", plan.layers), ("stages", plan.stages)):
        if len(given) != depth:
            return [f"{name} has {len(given)} entries, but the problem has {depth} stages"]
    violations = [f"stage {p} has {n} layers, but at least 1 is needed" for p, n in enumerate(plan.layers) if n < 1]
    if sum(plan.layers) != problem.layers:
        violations.append(f"layers sums to {sum(plan.layers)}, but the problem has {problem.layers} layers")
    if plan.hide_in_stalls not in ("none", "cooldown", "all"):
        violations.append(f"hide_in_stalls is {plan.hide_in_stalls!r}, but it is none, cooldown or all")
    return violations


def _stage(problem: PipelineProblem, plan: PipelinePlan, stage: int) -> Iterator[str]:
    """15.2: the stage's policies by the rules of `recompute-layer`, the words of that kind behind the stage's name."""
    own = problem.stages[stage]
    flying = in_flight(stage, len(problem.stages), problem.microbatches, problem.order)
    layers = RecomputeLayerProblem(
        name=problem.name,
        layers=plan.layers[stage],
        inflight_microbatches=flying,
        last_stage=stage == len(problem.stages) - 1,
        budget_bytes=own.budget_bytes,
        static_bytes=own.static_bytes + plan.layers[stage] * own.layer_static_bytes + flying * own.extra_bytes,
        layer_input_bytes=problem.layer_input_bytes,
        windows=problem.windows,
        ops=problem.ops,
    )
    verdict = judge_recompute_layer(layers, RecomputeLayerPlan(groups=plan.stages[stage].groups))
    for violation in verdict.violations:
        yield f"stage {stage}: {violation}"


def times_of(problem: PipelineProblem, plan: PipelinePlan, stage: int) -> StageTimes:
    """15.3 and 15.5 of a valid stage: its times for one microbatch, and whether it may recompute ahead."""
    own, layers, groups = problem.stages[stage], plan.layers[stage], plan.stages[stage].groups
    critical = hidden = ahead = 0
    for group in groups:
        by_place = _places(problem, group)
        critical += group.layers * sum(problem.ops[i].time_us for i in by_place["critical"])
        hidden += group.layers * sum(problem.ops[i].time_us for i in by_place["forward"])
        below = group.layers - (group is groups[-1])  # the last layer's windows come before, in the pass before
        ahead += below * sum(problem.ops[i].time_us for i in by_place["ahead"])
    exposed, exchanged = _last_layer(problem, groups[-1])
    if exchanged or problem.order == "gpipe":
        hidden += exposed
    else:
        critical += exposed
    return StageTimes(
        forward_us=layers * sum(op.time_us for op in problem.ops) + own.extra_us[0],
        backward_us=layers * problem.backward_us + own.extra_us[1],
        critical_us=critical,
        forward_hidden_us=hidden,
        ahead_us=ahead,
        may_hide=_early_bytes(problem, plan, stage) <= own.budget_bytes,
    )


def _places(problem: PipelineProblem, group: LayerGroup) -> dict[str, list[int]]:
    """Ops recomputed by place; `ahead`: of those in backward windows, what ops outside them are computed from."""
    phase = {i: problem.windows[w].phase if w < len(problem.windows) else "critical" for i, w in group.recomputed}
    found: dict[str, list[int]] = {"critical": [], "forward": [], "backward": [], "ahead": []}
    for i, place in sorted(phase.items()):
        found[place].append(i)
    reached = set(found["critical"]) | set(found["forward"])
    for i in range(len(problem.ops) - 1, -1, -1):
        if i in reached:
            reached |= set(problem.ops[i].inputs) & set(phase)
    found["ahead"] = [i for i in found["backward"] if i in reached]
    return found


def _last_layer(problem: PipelineProblem, group: LayerGroup) -> tuple[int, bool]:
    """15.3: time of the last layer's ops that no window before it can hold, and whether steady passes have one."""
    half = len([window for window in problem.windows if window.phase == "forward"])
    phase = {i: "critical" if w >= len(problem.windows) else problem.windows[w].phase for i, w in group.recomputed}

    def leads_from_forward(i: int) -> bool:
        """Whether op i is, or is computed from, an op of a forward window, by way of recomputed ops."""
        return i in phase and (phase[i] == "forward" or any(leads_from_forward(j) for j in problem.ops[i].inputs))

    exposed = sum(problem.ops[i].time_us for i in phase if phase[i] == "backward" and leads_from_forward(i))
    if len(problem.windows) != 2 * half:
        return exposed, False
    used = [0] * (2 * half + 1)
    for i, w in group.recomputed:
        used[w] += problem.ops[i].time_us
    mirrored = [problem.windows[(w + half) % (2 * half)].time_us for w in range(2 * half)]
    return exposed, all(time <= limit for time, limit in zip(used, mirrored, strict=False))


def _early_bytes(problem: PipelineProblem, plan: PipelinePlan, stage: int) -> int:
    """15.5: bytes in use at most while the stage recomputes ahead of a gradient, all its layers at once."""
    own, depth, count = problem.stages[stage], len(problem.stages), problem.microbatches
    if stage == depth - 1:
        return 0
    size = [op.output_bytes for op in problem.ops]
    kept = plan.layers[stage] * problem.layer_input_bytes + own.extra_bytes
    forward = early = working = 0
    least = []
    for group in plan.stages[stage].groups:
        places = {name: sum(size[i] for i in ops) for name, ops in _places(problem, group).items()}
        kept += group.layers * sum(size[i] for i in group.stored)
        forward += group.layers * places["forward"]
        early += group.layers * (places["critical"] + places["forward"])
        working = max(working, 2 * places["backward"] + places["critical"])
        least.append(places["critical"])
    needed = own.static_bytes + plan.layers[stage] * own.layer_static_bytes + working + early - min(least)
    if problem.order == "gpipe":
        return needed + count * kept
    if plan.hide_in_stalls == "all" and count >= depth - stage:
        return needed + forward + (depth - stage) * kept
    return needed + min(depth - 1 - stage, count) * kept
