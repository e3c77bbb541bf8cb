"""What Chameleon is compared with: Oobleck, ReCycle, Varuna, and training that has checkpoints only."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from solvers.ir import InvalidInput, ReplanProblem
from solvers.replan.cluster import moves
from solvers.replan.cluster.cluster import Cluster, Split
from solvers.replan.cluster.policy import Rejoining
from solvers.replan.cluster.rerouting import ReroutingLaw
from solvers.replan.cluster.setting import Checkpoints
from solvers.replan.cluster.state import Change, Running
from solvers.replan.oobleck import Oobleck
from solvers.replan.recycle import Recycle
from solvers.replan.symmetric import Symmetric


@dataclass(frozen=True)
class OobleckPolicy(Rejoining):
    """Pipeline templates: a pipeline that lost nodes shrinks, borrows or merges; every failure restarts.

    Its states move by the same Kuhn-Munkres and senders as Chameleon's: more than the original does, so that what is
    compared are plans. Where a state has lost all copies, its templates are instantiated anew from a checkpoint.
    """

    solver: Oobleck = field(default_factory=Oobleck)
    restart_us: int | None = None
    checkpoints: Checkpoints | None = None

    def failed(self, cluster: Cluster, running: Running) -> Change:
        """The templates' answer from living nodes, else anew from a checkpoint, else nothing."""
        return self._replan(cluster, running) or self._restart(cluster, running) or moves.stop(running)

    def repaired(self, cluster: Cluster, running: Running) -> Change | None:
        """The templates' answer with the new nodes if it is worth more than going on; anything if nothing runs."""
        if running.step_us is None:
            return moves.unless_stopped(self.failed(cluster, running))
        if self.rejoin == "next-decision":
            return None
        choices = [moves.going_on(running), self._replan(cluster, running)]
        return moves.unless_kept(moves.best(cluster, running.alive, choices))

    def _replan(self, cluster: Cluster, running: Running) -> Change | None:
        alive = [len(pipeline.nodes) - pipeline.nodes.count(None) for pipeline in running.pipelines]
        splits = _oobleck_after(cluster.problem, self.solver, tuple(sorted(alive, reverse=True)), len(running.idle))
        return moves.replan(cluster, running, splits, cluster.restart_us(self.restart_us))

    def _restart(self, cluster: Cluster, running: Running) -> Change | None:
        splits = _oobleck_start(cluster.problem, self.solver, running.alive)
        return moves.restore(cluster, running, splits, self.checkpoints, cluster.restart_us(self.restart_us))


@lru_cache(maxsize=4096)
def _oobleck_after(
    problem: ReplanProblem, solver: Oobleck, alive: tuple[int, ...], idle: int
) -> tuple[Split, ...] | None:
    return solver.after(problem, alive, idle) if alive else None


@lru_cache(maxsize=4096)
def _oobleck_start(problem: ReplanProblem, solver: Oobleck, nodes: int) -> tuple[Split, ...] | None:
    return solver.start(problem, nodes) if nodes else None


@dataclass(frozen=True)
class RecyclePolicy(Rejoining):
    """Rerouting as long as every stage has a survivor; then what `solver.lost_stage` says (stop, checkpoint, replan).

    `rerouting` None: the solver's own schedule, bubbles filled. Idle and repaired nodes take gaps, and whole new
    pipelines of the same depth are added, where F2 says so; that takes `restart_us` and the copying.
    """

    solver: Recycle = field(default_factory=Recycle)
    rerouting: ReroutingLaw | None = None
    restart_us: int | None = None
    checkpoints: Checkpoints | None = None

    def failed(self, cluster: Cluster, running: Running) -> Change:
        """Reroute or fill, else the rule for a lost stage, else nothing."""
        choices = [moves.reroute(cluster, running, self._law), self._filled(cluster, running)]
        return moves.best(cluster, running.alive, choices) or self._restart(cluster, running) or moves.stop(running)

    def repaired(self, cluster: Cluster, running: Running) -> Change | None:
        """Fill gaps or add pipelines if worth more than going on; anything if nothing runs."""
        if running.step_us is None:
            return moves.unless_stopped(self.failed(cluster, running))
        if self.rejoin == "next-decision":
            return None
        choices = [moves.going_on(running), self._filled(cluster, running), self._grown(cluster, running)]
        return moves.unless_kept(moves.best(cluster, running.alive, choices))

    @property
    def _law(self) -> ReroutingLaw:
        return self.solver if self.rerouting is None else self.rerouting

    def _filled(self, cluster: Cluster, running: Running) -> Change | None:
        return moves.fill(cluster, running, self._law, cluster.restart_us(self.restart_us))

    def _grown(self, cluster: Cluster, running: Running) -> Change | None:
        wide = cluster.grid(running.alive, _depth(cluster, running))
        if wide is None or len(wide) <= len(running.pipelines):
            return None
        return moves.replan(cluster, running, wide, cluster.restart_us(self.restart_us), "grow")

    def _restart(self, cluster: Cluster, running: Running) -> Change | None:
        solver = self.solver if running.pipelines else replace(self.solver, lost_stage="checkpoint")  # the first start
        splits = _recycle_restart(cluster.problem, solver, running.alive, _depth(cluster, running))
        restart_us = cluster.restart_us(self.restart_us)
        living = moves.replan(cluster, running, splits, restart_us) if self.solver.lost_stage == "replan" else None
        return living or moves.restore(cluster, running, splits, self.checkpoints, restart_us)


def _depth(cluster: Cluster, running: Running) -> int:
    return len(running.pipelines[0].layers) if running.pipelines else cluster.setting.depth


@lru_cache(maxsize=4096)
def _recycle_restart(problem: ReplanProblem, solver: Recycle, nodes: int, depth: int) -> tuple[Split, ...] | None:
    return solver.restart(problem, nodes, depth)


@dataclass(frozen=True)
class SymmetricPolicy(Rejoining):
    """Varuna: every failure goes back to the last checkpoint, into the best grid of alike pipelines."""

    checkpoints: Checkpoints
    solver: Symmetric = field(default_factory=Symmetric)

    def failed(self, cluster: Cluster, running: Running) -> Change:
        """The best grid from the last checkpoint; nothing where none fits."""
        splits = cluster.splits(self.solver, running.alive, 1)
        return moves.restore(cluster, running, splits, self.checkpoints, cluster.restart_us(None)) or moves.stop(
            running
        )

    def repaired(self, cluster: Cluster, running: Running) -> Change | None:
        """A larger grid, a checkpoint written first, if that is worth more than going on."""
        return _regrouped(self, cluster, running, cluster.splits(self.solver, running.alive, 1))


@dataclass(frozen=True)
class CheckpointOnly(Rejoining):
    """Restart from the last checkpoint with pipelines of the setting's depth, as many as nodes give and at most D.

    Below `least_data_parallel` of them training waits for repairs (None: D, the rigid job that needs its whole size).
    """

    checkpoints: Checkpoints
    least_data_parallel: int | None = 1

    def __post_init__(self) -> None:
        """Refuse an unknown word, and a job of no pipelines."""
        super().__post_init__()
        if self.least_data_parallel is not None and self.least_data_parallel < 1:
            raise InvalidInput(f"least_data_parallel is {self.least_data_parallel}, below 1: give at least 1, or none")

    def failed(self, cluster: Cluster, running: Running) -> Change:
        """What fits, from the last checkpoint; nothing where that is too little."""
        splits = self._splits(cluster, running)
        return moves.restore(cluster, running, splits, self.checkpoints, cluster.restart_us(None)) or moves.stop(
            running
        )

    def repaired(self, cluster: Cluster, running: Running) -> Change | None:
        """More pipelines, a checkpoint written first, if that is worth more than going on."""
        return _regrouped(self, cluster, running, self._splits(cluster, running))

    def _splits(self, cluster: Cluster, running: Running) -> Sequence[Split] | None:
        most = cluster.setting.data_parallel
        splits = cluster.grid(min(running.alive, most * cluster.setting.depth))
        least = most if self.least_data_parallel is None else self.least_data_parallel
        return None if splits is None or len(splits) < least else splits


def _regrouped(
    policy: SymmetricPolicy | CheckpointOnly, cluster: Cluster, running: Running, splits: Sequence[Split] | None
) -> Change | None:
    if running.step_us is None:
        return moves.unless_stopped(policy.failed(cluster, running))
    if policy.rejoin == "next-decision":
        return None
    choices = [moves.going_on(running), moves.regroup(cluster, running, splits, policy.checkpoints)]
    return moves.unless_kept(moves.best(cluster, running.alive, choices))
