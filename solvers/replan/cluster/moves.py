"""What a policy can do with a state: reroute, fill gaps, re-plan from living nodes, go back to a checkpoint, stop."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction

from solvers.replan.cluster.cluster import Cluster, Split
from solvers.replan.cluster.placing import place
from solvers.replan.cluster.rerouting import ReroutingLaw, rerouted_step_us
from solvers.replan.cluster.setting import Checkpoints
from solvers.replan.cluster.state import Change, Placed, Running


def reroute(cluster: Cluster, running: Running, law: ReroutingLaw) -> Change | None:
    """The peers of failed nodes take over, at once; None where that is impossible."""
    step_us = rerouted_step_us(cluster.problem, running, law)
    return None if step_us is None else Change(replace(running, step_us=step_us), 0, "reroute")


def fill(
    cluster: Cluster, running: Running, law: ReroutingLaw, restart_us: int, rival: Change | None = None
) -> Change | None:
    """Idle nodes take the gaps, their states copied from living nodes; where they are too few, the rest is rerouted.

    None where there is nothing to fill, a state has no living copy, or gaps remain that rerouting cannot bridge; and
    where it cannot be worth as much as `rival`.
    """
    missing = gaps(running.pipelines)
    if missing == 0 or not running.idle:
        return None
    if len(running.idle) >= missing:
        splits = [(pipeline.layers, pipeline.microbatches) for pipeline in running.pipelines]
        return replan(cluster, running, splits, restart_us, "fill", rival)
    if rerouted_step_us(cluster.problem, running, law) is None:
        return None
    filled, transfer_us = _filled(cluster, running)
    step_us = rerouted_step_us(cluster.problem, filled, law)
    return None if step_us is None else Change(replace(filled, step_us=step_us), restart_us + transfer_us, "fill")


def _filled(cluster: Cluster, running: Running) -> tuple[Running, int]:
    """Alike pipelines with idle nodes in some gaps, and the transfer time.

    Each node goes to the stage that misses most then: the fewest peers set the pace (F7). The peers of a stage share
    the copying, whole stages each.
    """
    depth, degree = len(running.pipelines[0].layers), len(running.pipelines)
    missing = [sum(pipeline.nodes[stage] is None for pipeline in running.pipelines) for stage in range(depth)]
    peers, filled = [degree - count for count in missing], [0] * depth
    for _ in running.idle:
        stage = max(range(depth), key=lambda stage: missing[stage])
        missing[stage] -= 1
        filled[stage] += 1
    idle, left = sorted(running.idle), list(filled)
    pipelines = []
    for pipeline in running.pipelines:
        nodes = list(pipeline.nodes)
        for stage, node in enumerate(nodes):
            if node is None and left[stage]:
                nodes[stage] = idle.pop()
                left[stage] -= 1
        pipelines.append(replace(pipeline, nodes=tuple(nodes)))
    busiest = max(
        -(-count // peers[stage]) * cluster.stage_static_bytes(running.pipelines[0].layers, stage)
        for stage, count in enumerate(filled)
    )
    return replace(running, pipelines=tuple(pipelines), idle=frozenset()), cluster.transfer_us(busiest)


def replan(
    cluster: Cluster,
    running: Running,
    splits: Sequence[Split] | None,
    restart_us: int,
    reason: str = "replan",
    rival: Change | None = None,
) -> Change | None:
    """New pipelines whose states come from living nodes; None where there is no plan, or a state has no living copy.

    None too where it would be worth less than `rival` even if nothing had to travel: then no nodes are searched for.
    """
    problem = cluster.problem
    if splits is None or not running.pipelines:
        return None
    if problem.sharded_optimizer and not all(pipeline.whole for pipeline in running.pipelines):
        return None
    step_us = cluster.step_us(splits)
    if rival is not None and cluster.value(step_us, restart_us, running.alive) < value(cluster, rival, running.alive):
        return None
    placed = place(problem, running, splits, cluster.setting.bytes_per_s)
    if placed.unowned:
        return None
    after = Running(placed.pipelines, placed.idle, step_us)
    return Change(after, restart_us + placed.transfer_us, reason)


def restore(
    cluster: Cluster, running: Running, splits: Sequence[Split] | None, checkpoints: Checkpoints | None, restart_us: int
) -> Change | None:
    """New pipelines from the last checkpoint; from the beginning of training where there is none.

    It takes `restore_us`; `restart_us` without checkpoints, and where no pipeline has ever been: nothing was trained
    yet, so that there is nothing to restore. None where there is no plan.
    """
    if splits is None:
        return None
    lost_us = restart_us if checkpoints is None or not running.pipelines else checkpoints.restore_us
    return Change(cluster.on(running.nodes(), splits), lost_us, "restore", restored=True)


def regroup(
    cluster: Cluster, running: Running, splits: Sequence[Split] | None, checkpoints: Checkpoints
) -> Change | None:
    """A planned restart: a checkpoint is written, then restored into new pipelines; None where there is no plan."""
    if splits is None:
        return None
    lost_us = checkpoints.save_us + checkpoints.restore_us
    return Change(cluster.on(running.nodes(), splits), lost_us, "regroup", saves=True)


def stop(running: Running) -> Change:
    """Nothing can train; the nodes keep what they hold."""
    return Change(replace(running, step_us=None), 0, "stop")


def best(cluster: Cluster, alive: int, changes: Iterable[Change | None]) -> Change | None:
    """The change of most value by F2, the shorter transition where they tie; None where there is none."""
    possible = [change for change in changes if change is not None and change.running.step_us is not None]
    if not possible:
        return None
    return max(possible, key=lambda change: (value(cluster, change, alive), -change.lost_us, -_step(change)))


def value(cluster: Cluster, change: Change, alive: int) -> Fraction:
    """F2 of a change after which something trains."""
    return cluster.value(_step(change), change.lost_us, alive)


def _step(change: Change) -> int:
    step_us = change.running.step_us
    assert step_us is not None, "nothing runs, which is worth nothing"
    return step_us


def going_on(running: Running) -> Change | None:
    """Everything as it is; None where nothing trains."""
    return None if running.step_us is None else Change(running, 0, "keep")


def unless_kept(change: Change | None) -> Change | None:
    """The change; None where it is to go on."""
    return None if change is None or change.reason == "keep" else change


def unless_stopped(change: Change) -> Change | None:
    """The change; None where it is to stop."""
    return None if change.running.step_us is None else change


def gaps(pipelines: Iterable[Placed]) -> int:
    """How many stages have lost their node."""
    return sum(pipeline.nodes.count(None) for pipeline in pipelines)
