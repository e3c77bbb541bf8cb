"""Judge of `replan` decisions: pipelines, memory F8, the 1F1B recurrence F5, rerouting F7 (formats.md 7)."""

from dataclasses import dataclass
from fractions import Fraction

from solvers.check.replan.transfers import judge_mapping, slowest_transfer_us
from solvers.check.verdict import Verdict
from solvers.ir.replan import CurrentState, NewPipeline, ReplanPlan, ReplanProblem


def judge_replan(problem: ReplanProblem, plan: ReplanPlan) -> Verdict:
    """The decision's violations, and its objective (rounded up) where it has none."""
    verdict = _judge_reroute(problem, plan) if plan.policy == "reroute" else _judge_dynamic(problem, plan)
    lost = _lost_shards(problem)
    return Verdict((*verdict.violations, *lost)) if lost else verdict


def _lost_shards(problem: ReplanProblem) -> list[str]:
    """The failed nodes whose shard of the optimizer states nobody else holds."""
    if not problem.sharded_optimizer or problem.current is None:
        return []
    staged = {node for pipeline in problem.current.pipelines for node in pipeline.nodes}
    lost = sorted(staged & set(problem.current.failed))
    return [f"node {node} held the only copy of its shard of the optimizer states: load a checkpoint" for node in lost]


def _judge_dynamic(problem: ReplanProblem, plan: ReplanPlan) -> Verdict:
    violations = _shape(problem, plan.pipelines)
    if not violations:
        for number, pipeline in enumerate(plan.pipelines):
            flights = [pipeline.microbatches] * len(pipeline.layers)
            violations += _memory(problem, f"pipelines[{number}]", pipeline.layers, flights)
        violations += judge_mapping(problem, plan)
    if violations:
        return Verdict(tuple(violations))
    step = max(pipeline_us(problem, pipeline.layers, pipeline.microbatches) for pipeline in plan.pipelines)
    step += _sync_us(problem, [pipeline.layers for pipeline in plan.pipelines])
    lost = Fraction(0)
    if problem.restart_us is not None:
        lost = problem.restart_us + slowest_transfer_us(problem, plan.transfers or ())
    return _objective(problem, Fraction(step), lost)


def _sync_us(problem: ReplanProblem, pipelines: list[tuple[int, ...]]) -> int:
    """`sync_us`, and `layer_sync_us` as often as the fullest stage has layers: a node takes part in one at a time."""
    if len(pipelines) < 2:
        return 0
    return problem.sync_us + problem.layer_sync_us * max(count for layers in pipelines for count in layers)


def _shape(problem: ReplanProblem, pipelines: tuple[NewPipeline, ...]) -> list[str]:
    """Every layer once per pipeline, every microbatch once, no stage or pipeline empty, enough nodes."""
    if not pipelines:
        return ["pipelines is empty, but a dynamic plan needs at least one"]
    violations = []
    for number, pipeline in enumerate(pipelines):
        place, depth = f"pipelines[{number}]", len(pipeline.layers)
        violations += [f"{place}, stage {s} has {n} layers, below 1" for s, n in enumerate(pipeline.layers) if n < 1]
        if sum(pipeline.layers) != problem.layers:
            violations.append(f"{place} holds {sum(pipeline.layers)} layers, but the model has {problem.layers}")
        if depth > problem.max_depth:
            violations.append(f"{place} has {depth} stages, but max_depth is {problem.max_depth}")
        if pipeline.microbatches < 1:
            violations.append(f"{place} has {pipeline.microbatches} microbatches, below 1")
    total = sum(pipeline.microbatches for pipeline in pipelines)
    if total != problem.microbatches:
        violations.append(f"the pipelines count {total} microbatches, but a step has {problem.microbatches}")
    used = sum(len(pipeline.layers) for pipeline in pipelines)
    if used > problem.nodes:
        violations.append(f"the pipelines use {used} nodes, but {problem.nodes} are alive")
    return violations


def _memory(problem: ReplanProblem, place: str, layers: tuple[int, ...], microbatches: list[int]) -> list[str]:
    """F8: l·static + min(P − i, m)·l·activation, and what the first and the last stage hold besides."""
    violations = []
    depth = len(layers)
    for stage, count in enumerate(layers):
        flights = min(depth - stage, microbatches[stage])
        needed = count * (problem.layer_static_bytes + flights * problem.layer_activation_bytes)
        needed += problem.first_static_bytes if stage == 0 else 0
        needed += problem.last_static_bytes if stage == depth - 1 else 0
        if needed > problem.memory_bytes:
            violations.append(f"{place}, stage {stage} needs {needed} bytes, but a node has {problem.memory_bytes}")
    return violations


def stage_times_us(problem: ReplanProblem, layers: tuple[int, ...]) -> list[tuple[int, int]]:
    """Forward and backward time of each stage for one microbatch, extras included."""
    times = [[count * problem.forward_us, count * problem.backward_us] for count in layers]
    for extra, stage in ((problem.first_extra_us, times[0]), (problem.last_extra_us, times[-1])):
        stage[0] += extra[0]
        stage[1] += extra[1]
    return [(forward, backward) for forward, backward in times]


def pipeline_us(problem: ReplanProblem, layers: tuple[int, ...], microbatches: int) -> int:
    """F5: the end of the last operation when every stage runs its static 1F1B order as early as it can."""
    times = stage_times_us(problem, layers)
    last = len(layers) - 1
    waiting = [one_f_one_b(stage, len(layers), microbatches) for stage in range(len(layers))]
    ends: dict[tuple[int, str, int], int] = {}
    free = [0] * len(layers)
    while any(waiting):
        for stage, (forward, backward) in enumerate(times):
            while waiting[stage]:
                kind, batch = waiting[stage][0]
                before = _previous(stage, kind, batch, last)
                if before is not None and before not in ends:
                    break
                hop = problem.p2p_us if before is not None and before[0] != stage else 0
                arrived = 0 if before is None else ends[before] + hop
                free[stage] = max(free[stage], arrived) + (forward if kind == "F" else backward)
                ends[stage, kind, batch] = free[stage]
                del waiting[stage][0]
    return max(ends.values())


def _previous(stage: int, kind: str, batch: int, last: int) -> tuple[int, str, int] | None:
    """What a pass waits for: F for the stage before, B for the stage after, the last stage's B for its own F."""
    if kind == "F":
        return None if stage == 0 else (stage - 1, "F", batch)
    return (stage, "F", batch) if stage == last else (stage + 1, "B", batch)


def one_f_one_b(stage: int, depth: int, microbatches: int) -> list[tuple[str, int]]:
    """The static 1F1B order of a stage: P − 1 − i forwards to fill, then one forward, one backward, then the rest."""
    fill = min(depth - 1 - stage, microbatches)
    order = [("F", batch) for batch in range(fill)]
    for batch in range(microbatches):
        if batch + fill < microbatches:
            order.append(("F", batch + fill))
        order.append(("B", batch))
    return order


def _judge_reroute(problem: ReplanProblem, plan: ReplanPlan) -> Verdict:
    current = problem.current
    if current is None:
        return Verdict(("policy is reroute, but the problem has no current pipelines to keep",))
    violations = []
    if plan.pipelines:
        violations.append(
            f"policy is reroute, which keeps the current pipelines, but pipelines lists {len(plan.pipelines)}"
        )
    if plan.transfers:
        violations.append(f"policy is reroute, which moves no layers, but transfers lists {len(plan.transfers)}")
    reroute = _symmetric(problem, current)
    if isinstance(reroute, str):
        return Verdict((*violations, reroute))
    violations += reroute.violations(problem)
    if violations:
        return Verdict(tuple(violations))
    slowest = max(forward + backward for forward, backward in stage_times_us(problem, reroute.layers))
    share = reroute.microbatches * max(reroute.shares()) + len(reroute.layers) - 1
    sync = _sync_us(problem, [reroute.layers] * reroute.degree)
    return _objective(problem, share * slowest + sync, Fraction(0))


@dataclass(frozen=True)
class _Reroute:
    """D alike pipelines of the given layers a stage, `failed[i]` of whose stages i are gone."""

    degree: int
    layers: tuple[int, ...]
    microbatches: int
    failed: tuple[int, ...]

    def shares(self) -> list[Fraction]:
        """D / (D − f_i): how much more each survivor of stage i computes."""
        return [Fraction(self.degree, self.degree - failed) for failed in self.failed]

    def violations(self, problem: ReplanProblem) -> list[str]:
        """Every stage has a survivor, memory F8 holds with its share, and the microbatches are a step's."""
        dead = [stage for stage, failed in enumerate(self.failed) if failed >= self.degree]
        if dead:
            return [f"stage {stage} has lost all its {self.degree} nodes: rerouting needs one" for stage in dead]
        total = self.degree * self.microbatches
        violations = []
        if total != problem.microbatches:
            violations.append(f"current counts {total} microbatches, but a step has {problem.microbatches}")
        flights = [-(-self.microbatches * share // 1) for share in self.shares()]
        return violations + _memory(problem, "current", self.layers, [int(flight) for flight in flights])


def _symmetric(problem: ReplanProblem, current: CurrentState) -> _Reroute | str:
    """The current state as alike pipelines, or the sentence that says why it is not."""
    if not current.pipelines:
        return "policy is reroute, but current lists no pipelines"
    first = current.pipelines[0]
    for number, pipeline in enumerate(current.pipelines):
        if (pipeline.layers, pipeline.microbatches) != (first.layers, first.microbatches):
            return (
                f"policy is reroute, which needs alike pipelines, but current.pipelines[{number}] has layers "
                f"{list(pipeline.layers)} and {pipeline.microbatches} microbatches, the first {list(first.layers)} "
                f"and {first.microbatches}"
            )
    failed = tuple(
        sum(pipeline.nodes[stage] in current.failed for pipeline in current.pipelines)
        for stage in range(len(first.layers))
    )
    return _Reroute(len(current.pipelines), first.layers, first.microbatches, failed)


def _objective(problem: ReplanProblem, step: Fraction, lost: Fraction) -> Verdict:
    """T_step, or with `current` T_step·τ/(τ − T_trans), rounded up."""
    interval = problem.expected_interval_us
    if interval is not None:
        if lost >= interval:
            return Verdict((f"the transition takes {float(lost):.0f} us, but the expected interval is {interval} us",))
        step = step * interval / (interval - lost)
    return Verdict((), -(-step.numerator // step.denominator))
