"""Judge of joint schedules (formats.md 11.11): those of recompute-graph, and what leaves and returns, by order alone.

What both kinds share word for word is the judge's of that kind.
"""

from collections.abc import Sequence
from itertools import pairwise

from solvers.check.recompute_graph.schedule import COMM, RUNS, RunsJudge, form
from solvers.check.verdict import Verdict
from solvers.ir.joint import JointProblem
from solvers.ir.schedule import Action, Schedule

LANES = {"swap_out": "0.out", "swap_in": "0.in"}
NEXT = {
    **dict.fromkeys(RUNS, ("swap_out", "release")),
    "swap_in": ("swap_out", "release"),
    "swap_out": ("release",),
}
"""What may happen to an output after it has been made, has returned, or has been sent away."""


def judge_joint_schedule(problem: JointProblem, schedule: Schedule) -> Verdict:
    """Runs in order with their inputs there; swap-out, release and swap-in in turn; memory and host within budgets."""
    faults = [fault for action in schedule.actions for fault in _form(problem, action)]
    return Verdict(tuple(faults or _Judge(problem, schedule).violations()))


def _form(problem: JointProblem, action: Action) -> list[str]:
    """As for recompute-graph; transfers stand on the link's lanes and name an output, too."""
    if action.do not in LANES:
        return form(problem, action)
    place = f"action {action.id}"
    if action.op is None or action.op >= len(problem.ops):
        return [f"{place} belongs to op {action.op}, but ops are 0…{len(problem.ops) - 1}"]
    faults = []
    if action.lane != LANES[action.do]:
        faults.append(f"{place} does {action.do} on lane {action.lane}, but it belongs on {LANES[action.do]}")
    expected = ((action.op,), problem.ops[action.op].output_bytes)
    if (action.data, action.bytes) != expected:
        faults.append(f"{place} has data {list(action.data)} of {action.bytes} bytes, but {action.do} has {expected}")
    return faults


class _Judge(RunsJudge):
    """A schedule whose outputs may be away between two of their uses."""

    problem: JointProblem

    def __init__(self, problem: JointProblem, schedule: Schedule) -> None:
        super().__init__(problem, schedule)
        self.away = self._aways()
        self.transfers = [action for action in self.order if action.do in LANES]

    def violations(self) -> list[str]:
        return super().violations() or [*self._host(), *self._turns()]

    def alternation(self, i: int) -> list[str]:
        """Made, (sent, released, returned,) … released, each surely after the one before; a return is of what left."""
        story, found = self.story[i], []
        if not story or story[0].do not in ("compute", "collective_start"):
            return [f"op {i} is recomputed, moved or released before it has run"]
        before: str | None = None
        for earlier, later in pairwise(story):
            after_release = ("swap_in",) if before == "swap_out" else ("recompute",)
            if later.do not in NEXT.get(earlier.do, after_release):
                found.append(f"op {i} has {later.do} (action {later.id}) after {earlier.do} (action {earlier.id})")
            elif not self.before(earlier, later):
                found.append(f"action {later.id} does not wait for action {earlier.id}, both of op {i}'s output")
            before = earlier.do
        if story[-1].do != "release" or before == "swap_out":
            found.append(f"op {i}'s output is never released after action {story[-1].id}, or left on the host")
        return found

    def memory(self) -> list[str]:
        """At each action of the compute lane: what other lanes may have allocated counts where it is not surely later.

        What returns is allocated where the compute lane stands when it is issued.
        """
        found, level, problem = [], self.problem.static_bytes, self.problem
        waiting = [list(self.remote), [action for action in self.transfers if action.do == "swap_in"]]
        for action in self.lane:
            for lane in waiting:
                while lane and not self.before(action, lane[0]):
                    level += lane.pop(0).bytes
            level += action.bytes if action.do in RUNS else 0
            most = level + self._workspace(action)
            if most > problem.budget_bytes:
                found.append(f"action {action.id} finds {most} bytes in use, budget {problem.budget_bytes}")
            level -= action.bytes if action.do == "release" else 0
        return found

    def _workspace(self, action: Action) -> int:
        """Of the action itself, and of communication that may run beside it."""
        ops = self.problem.ops
        own = ops[action.op].workspace_bytes if action.do in RUNS and action.op is not None else 0
        beside = (
            ops[one.op or 0].workspace_bytes
            for one in self.remote
            if ops[one.op or 0].workspace_bytes and not self.before(one, action) and not self.before(action, one)
        )
        return own + sum(beside)

    def _aways(self) -> list[tuple[Action, Action, Sequence[Action]]]:
        """Each swap-out, its swap-in, and the runs that read the output behind that."""
        found: list[tuple[Action, Action, Sequence[Action]]] = []
        for i, story in enumerate(self.story):
            for sent, back in zip(
                [one for one in story if one.do == "swap_out"],
                [one for one in story if one.do == "swap_in"],
                strict=False,
            ):
                reads = [
                    run for run in self.order
                    if run.do in RUNS and i in self.problem.ops[run.op or 0].inputs
                    and self.place[run.id] > self.place[back.id]
                ]  # fmt: skip
                found.append((sent, back, reads))
        return found

    def _host(self) -> list[str]:
        """The host holds an output from when it is sent until its first reader behind its return has begun."""
        limit = self.problem.host_budget_bytes
        if limit is None:
            return []
        found = []
        for sent, _, _ in self.away:
            held = sum(
                other.bytes
                for other, _, reads in self.away
                if not self.before(sent, other) and not (reads and self.before(reads[0], sent))
            )
            if held > limit:
                found.append(f"action {sent.id} may find {held} bytes on the host, host budget {limit}")
        return found

    def _turns(self) -> list[str]:
        """Where communication shares the link, no transfer may run beside it."""
        if not self.problem.comm_shares_link:
            return []
        return [
            f"action {one.id} may run beside communication {run.id}, which shares its link"
            for run in self.order
            if run.lane == COMM
            for one in self.transfers
            if not self.before(run, one) and not self.before(one, run)
        ]
