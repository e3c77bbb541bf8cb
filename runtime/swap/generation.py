"""One pass of making policies: each is planned, executed and measured in turn, and the best is kept.

One file: planning, measuring and choosing work on the same list of results.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias

import msgspec

from runtime.loop.log import LOGGER
from runtime.swap.policy import Pace, Policy, locate
from runtime.swap.portfolio import PolicyChoice, needed_only
from runtime.swap.profiled import Profiled
from runtime.swap.promises import launches_tell, promised, stalled
from runtime.swap.report import PolicyResult, SessionCounts
from runtime.swap.tightening import Aimed, Tightening, retries, slower
from solvers.ir.amounts import show_bytes
from solvers.ir.errors import BayplanError, InfeasibleBudget, InvalidInput
from solvers.ir.graph import OpGraph
from solvers.ir.hardware import Hardware
from solvers.ir.schedule import Schedule
from solvers.ir.solution import Solution
from solvers.ir.swap import HostRounding
from solvers.planner import QUICK, make_problem
from solvers.timeline.departures import copy_time, latest_departures
from solvers.timeline.gaps import gaps_apart
from solvers.timeline.peak import promised_peak_bytes
from solvers.timeline.reach import within_reach
from solvers.timeline.residents import residents_leaving
from solvers.timeline.segments import PlanAt, SegmentSettings, held_by_steps, least_planned, planned_and_held
from solvers.timeline.shares import least_shares, swaps_short

MARGIN = 0.02
"""Passive swaps alone must be faster by this share of the time before a policy, which is more even, is given up."""
LEFT = (0.01, 0.02, 0.04, 0.06, 0.09, 0.13, 0.18, 0.25, 0.35)
"""Shares of the budget that policies leave to segments, tried in turn: a finer search alone left as much, and its
steps took 0.5 % longer (forty budgets)."""
MORE_HEADROOM = 0.05
"""Share of the budget by which a policy is planned for less, once it made the allocator give its cache back."""
SPARED = 0.02
"""Share of the budget that policies leave where sizes vary: no two iterations need the same."""
MOST_REPEATS = 3
"""How often a policy is planned for less on that ground."""

_Aimed: TypeAlias = tuple[int, Solution[Schedule]]
"""A plan and the bytes that it was made for."""


class Generation:
    """The policies of one generation, in the order of the portfolio.

    `propose` makes the next one that can be executed, `measured` says how the latest went. `open` until every policy of
    the portfolio has been executed and measured, or none is needed; `remark` says what is to be known of all. Those
    that are not tried `always` come last, where they are.
    """

    def __init__(
        self,
        number: int,
        choices: Sequence[PolicyChoice],
        hardware: Hardware,
        budget_bytes: int,
        host_bytes: int | None = None,
        segments: SegmentSettings | None = None,
        host_rounding: HostRounding = "exact",
    ) -> None:
        self.number = number
        self.results: list[PolicyResult] = []
        self.open = True
        self.varies = False
        self.shares: Sequence[float] = (1.0,)
        self.fits = False
        self.remark: str | None = None
        self.unswapped_peak_bytes: int | None = None
        self.unplanned_us: float | None = None
        self._choices = [choice for choice in choices if choice.tried == "always"]
        self._others = [
            choice
            for choice in choices
            if choice.tried != "always" and (segments is None or not (choice.residents or choice.gaps))
        ]
        self._hardware = hardware
        self._budget_bytes = budget_bytes
        self._aim_bytes = self._peak_bytes = budget_bytes
        self._host_bytes = host_bytes
        self._segments = segments
        self._repeats_left = 0 if segments is None else MOST_REPEATS
        self._unplanned_retries = 0
        self._stayed = False  # nothing left in the iteration that no policy ruled, whatever a replay says of segments
        self._host: dict[str, object] = {"host_rounding": host_rounding}
        if host_bytes is not None:
            self._host["host_budget_bytes"] = host_bytes
        self._policies: list[Policy | None] = []
        self._planned: list[Aimed] = []
        self._sizes: list[int] = []
        self._unplanned_size = 0
        self._tightening = Tightening(budget_bytes)
        self._short = False  # no policy alone keeps the budget
        self._before: PolicyResult | None = None  # as a policy ran that is tried once more
        self._failures = 0
        self._mean_swaps: float | None = None

    @property
    def fastest_us(self) -> float | None:
        """The least time of an iteration so far: swaps only ever add, so it is nearest to one without stalls."""
        return self.fastest_us_of(self._unplanned_size)

    def fastest_us_of(self, size: int) -> float | None:
        """The same of an iteration whose forward pass works on `size` bytes; where sizes vary, times go with them."""
        times = [(self.unplanned_us, self._unplanned_size)]
        times += [(result.duration_us, own) for result, own in zip(self.results, self._sizes, strict=False)]
        told = [(time, own) for time, own in times if time is not None and self._tells(size, own)]
        return min((time * (size / own) if self.varies and own else time for time, own in told), default=None)

    def _tells(self, size: int, own_size: int) -> bool:
        """Whether the time of an iteration of `own_size` tells that of one of `size`: none of an empty batch does."""
        return not self.varies or (size > 0) == (own_size > 0)

    @property
    def trial(self) -> Policy | None:
        """The policy that waits for its iteration; None where the next one is executed without."""
        waits = self.open and bool(self.results) and self.results[-1].counts is None
        return self._policies[-1] if waits else None

    @property
    def size(self) -> int:
        """How many policies the portfolio has."""
        return len(self._choices)

    @property
    def exhausted(self) -> bool:
        """Whether every policy of the portfolio has been made, and none is to be executed once more."""
        return self.trial is None and len(self.results) >= len(self._choices) + len(self._more)

    @property
    def _launch_us(self) -> float:
        return self._hardware.devices[0].launch_us

    @property
    def _more(self) -> list[PolicyChoice]:
        """What is tried, too: where sizes vary, or else where launching copies takes long, or memory is short."""
        if self.varies:
            return [choice for choice in self._others if choice.tried in ("varied", "either")]
        tell = launches_tell(self.results, self._launch_us)
        return [
            choice
            for choice in self._others
            if (tell and choice.tried in ("launches", "either"))
            or (self._short and (choice.gaps or choice.tried == "short"))
        ]

    def fail(self, remark: str) -> None:
        """An iteration could not be profiled; as many failures as policies close the generation."""
        self.remark = remark
        self._failures += 1
        self.open = self._failures < len(self._choices)

    def propose(self, profiled: Profiled, *, waits: bool = False) -> Policy | None:
        """The policy to execute next; None, and closed, where there is none any more or none is needed.

        Where none is needed it stays open if it `waits` for a larger iteration. A policy that is tried once more waits
        already.
        """
        if self.trial is not None:
            return self.trial
        self.unswapped_peak_bytes = max(profiled.graph.memory_bytes)
        self.fits = self.unswapped_peak_bytes <= self._budget_bytes and (
            self._stayed or self._settles(profiled.graph, None)
        )
        if self.fits and waits:
            return None
        if self.fits:
            self.open = False
            self.remark = (
                f"the iteration needs {show_bytes(self.unswapped_peak_bytes)}, within the "
                f"{show_bytes(self._budget_bytes)} that it may use: nothing is swapped"
            )
        if self.varies and not self.results:
            self._aim_bytes = self._spared_bytes
        while self.open and not self.exhausted:
            if self.varies or len(self.results) == len(self._choices):
                self._choices, self._others = [*self._choices, *self._more], []
            choice = self._choices[len(self.results)]
            self._policies.append(self._make(choice, profiled))
            self._planned.append(Aimed(self._aim_bytes, self._peak_bytes))
            if self._policies[-1] is not None:
                return self._policies[-1]
            self._tighten()
        self.open = False
        return None

    def measured(self, duration_us: float | None, counts: SessionCounts, size: int = 0) -> None:
        """An iteration took that long under the latest policy or, before the first, with passive swaps only."""
        if not self.results:
            self.unplanned_us, self._unplanned_retries, self._unplanned_size = duration_us, counts.retries, size
            self._stayed = counts.swapped_out + counts.swapped_in + counts.retries + counts.failed == 0
            return
        self._sizes += [size] * (len(self.results) - len(self._sizes))
        ran = replace(self.results[-1], duration_us=duration_us, counts=counts)
        self.results[-1], self._before = slower(ran, self._before), None
        if self._tightening.again(self.results, self._planned):
            self._before = self.results[-1]
            self.results[-1] = replace(self._before, duration_us=None, counts=None)
            return
        if counts.retries > 0 and self._repeats_left > 0:
            self._repeats_left -= 1
            self._aim_bytes -= int(MORE_HEADROOM * self._budget_bytes)
            self._choices.insert(len(self.results), self.results[-1].choice)
        self._tighten()

    def _tighten(self) -> None:
        """Once all of the portfolio have been tried: try the best one for more of the budget, in an arena, or for less.

        Not where sizes vary: an iteration's time tells of its size first.
        """
        if not self.exhausted or self._segments is None or self.varies:
            return
        found = self._tightening.next(self.results, self._planned)
        if found is not None:
            self._choices.append(needed_only(self._choices[found[0]]))
            self._aim_bytes = found[1]

    def best(self) -> Policy | None:
        """Close, and mark and return the measured best: least device time, then least on demand or passive.

        None where passive swaps alone were clearly faster than every policy, or no policy was executed. Ask once.
        """
        policies = self._policies
        self.close()
        place = self._most_promising() if self.varies else self._tightening.best(self.results)
        if place is None:
            return None
        if self.varies:
            self.results[place] = replace(self.results[place], kept=True)
            return policies[place]
        took_us = self.results[place].duration_us
        calm = self._unplanned_retries == 0 or retries(self.results[place]) > 0
        if (
            calm
            and self.unplanned_us is not None
            and took_us is not None
            and self.unplanned_us < (1 - MARGIN) * took_us
        ):
            self.remark = (
                f"passive swaps alone took {self.unplanned_us:.0f} us, the best policy {took_us:.0f} us: none is kept"
            )
            return None
        self.results[place] = replace(self.results[place], kept=True)
        return policies[place]

    @property
    def _spared_bytes(self) -> int:
        """What policies are made for where sizes vary: a little less than the budget."""
        return int((1 - SPARED) * self._budget_bytes)

    def _most_promising(self) -> int | None:
        """The place of the executed policy that promised the least delay: where sizes vary, times tell of those."""
        ran = [place for place, result in enumerate(self.results) if result.counts is not None]
        return min(ran, key=lambda place: self._promised(self.results[place]), default=None)

    def _promised(self, result: PolicyResult) -> tuple[float, float]:
        base_us = min((one.base_us for one in self.results if one.base_us), default=None)
        return promised(result, stalled(self.results, self._launch_us), self._launch_us, 1 - min(self.shares), base_us)

    def planned_again(self, profiled: Profiled, *, anew: bool) -> Policy | None:
        """The kept policy made anew from another iteration, or the most promising of all; None where there is no plan.

        `kept` is then the one that was made.
        """
        kept = self.kept
        if kept is None:
            return None
        found: list[tuple[PolicyResult, int, Policy]] = []
        for place, result in enumerate(self.results):
            if place == kept or (anew and result.choice not in [other.choice for other, _, _ in found]):
                made = self._made_again(result, profiled)
                found += [] if made is None else [(made[0], place, made[1])]
        if not found:
            return None
        best, place, policy = min(found, key=lambda made: self._promised(made[0]))
        self.results[kept] = replace(self.results[kept], kept=False)
        self.results[place] = replace(best, kept=True)
        return policy

    def _made_again(self, result: PolicyResult, profiled: Profiled) -> tuple[PolicyResult, Policy] | None:
        self._aim_bytes = self._spared_bytes
        held, profiled = profiled.graph.memory_bytes, self._seen_by(result.choice, profiled)
        try:
            solution = self._plan(result.choice, profiled.graph)
        except Exception as error:  # the policy that stands goes on
            LOGGER.warning("policy %s was not made again: %r", result.choice, error)
            return None
        if solution.plan is None:
            return None
        policy = self._located(solution.plan, profiled, held)
        return replace(self._promise(result, solution, policy), reason=_misfit(policy)), policy

    def _promise(self, result: PolicyResult, solution: Solution[Schedule], policy: Policy) -> PolicyResult:
        promised = replace(result, objective_us=solution.objective, base_us=solution.base, bytes=policy.bytes)
        return replace(promised, swaps=len(policy.targets), mean_swaps=self._mean_swaps)

    def close(self) -> None:
        """Try no more policies and let go of all: only their results stay, which the report lists to the end.

        One that was to be executed once more counts as it ran.
        """
        self.open = False
        self._policies = []
        if self._before is not None:
            self.results[-1], self._before = self._before, None

    @property
    def kept(self) -> int | None:
        """Index of the best policy in `results`."""
        return next((place for place, result in enumerate(self.results) if result.kept), None)

    def _make(self, choice: PolicyChoice, profiled: Profiled) -> Policy | None:
        """Plan, and append the outcome to the results."""
        blank = PolicyResult(choice=choice, generation=self.number)
        self._peak_bytes = 0
        held, profiled = profiled.graph.memory_bytes, self._seen_by(choice, profiled)
        try:
            solution = self._plan(choice, profiled.graph)
        except Exception as error:  # whatever may be wrong with a planner, the program trains on
            self.results.append(replace(blank, reason=str(error) or repr(error)))
            LOGGER.warning("policy %s was not made: %r", choice, error, exc_info=not isinstance(error, BayplanError))
            return None
        if solution.plan is None:
            self.results.append(replace(blank, reason=solution.reason or "it found no plan within its limits"))
            return None
        policy = self._located(solution.plan, profiled, held)
        self._peak_bytes = self._promised_peak(profiled.graph, solution.plan)
        repeats = self._repeats(policy)
        self.results.append(replace(self._promise(blank, solution, policy), reason=repeats or _misfit(policy)))
        return policy if policy.targets and repeats is None else None

    def _seen_by(self, choice: PolicyChoice, profiled: Profiled) -> Profiled:
        """The iteration as a policy sees it: whether residents may leave, states once its size is told.

        Then, and where sizes vary, it is made for the budget, but for operators that it cannot help: passive swaps do.
        """
        if self._segments is not None or not (self.varies or choice.residents or choice.gaps):
            return profiled
        self._aim_bytes = self._spared_bytes if self.varies else self._budget_bytes
        op = profiled.told_at if choice.residents else None
        graph = profiled.graph if op is None else residents_leaving(profiled.graph, op)
        graph = gaps_apart(graph, self._aim_bytes, profiled.living) if choice.gaps else graph
        reached = within_reach(graph, make_problem("swap", graph, self._hardware, self._aim_bytes, gaps=choice.gaps))
        pairs = zip(graph.memory_bytes, reached.memory_bytes, strict=True)
        beyond = max((held for held, other in pairs if held > other), default=0)
        if beyond:
            self.remark = self._out_of_reach(beyond, "policies are made for all other operators")
        return profiled._replace(graph=reached)

    def _located(self, plan: Schedule, profiled: Profiled, held: tuple[int, ...]) -> Policy:
        """A plan as the engine is told it; where sizes vary, smaller iterations spare what they need not send away.

        Operators `held` so much, those beyond reach included: passive swaps that they need are counted, too.
        """
        graph, operators, phases, sightings, growth, staying, landmarks, reads, _ = profiled
        if not self.varies:
            policy = locate(plan, graph, operators, phases, sightings, landmarks=landmarks)
        else:
            shares = least_shares(graph, plan, self._aim_bytes, staying)
            least = {name: growth * share for name, share in shares.items()}
            whole = msgspec.structs.replace(graph, memory_bytes=held)
            self._mean_swaps = sum(
                sum(share <= size for share in shares.values())
                + swaps_short(whole, plan, self._budget_bytes, shares, size, staying)
                for size in self.shares
            ) / len(self.shares)
            policy = locate(plan, graph, operators, phases, sightings, least, landmarks)._replace(on_demand=True)
        return self._making_way(policy, plan, graph, reads) if reads else policy

    def _making_way(self, policy: Policy, plan: Schedule, graph: OpGraph, reads: tuple[int, ...]) -> Policy:
        """What leaves waits for the host's reads, as long as memory allows."""
        copy = copy_time(self._hardware)
        mean_us = sum(op.time_us for op in graph.ops) / len(graph.ops)
        latest = latest_departures(graph, plan, self._aim_bytes, copy.us)
        pace = Pace(reads, copy.latency_us / mean_us, copy.byte_us / mean_us)
        return policy.making_way(pace, {repr(name): op for name, op in latest.items()})

    def _promised_peak(self, graph: OpGraph, plan: Schedule) -> int:
        sizes = {tensor.id: graph.block_bytes(tensor) for tensor in graph.tensors}
        return promised_peak_bytes(graph.memory_bytes, sizes, plan)

    def _repeats(self, policy: Policy) -> str | None:
        """Why a policy need not be executed: an earlier one was the same."""
        if policy not in self._policies:
            return None
        return f"the same as {self._choices[self._policies.index(policy)]}"

    def _plan(self, choice: PolicyChoice, graph: OpGraph) -> Solution[Schedule]:
        """A plan; where memory comes in segments one whose blocks find theirs, for as much of the budget as allows it.

        A replay of the plan's own sizes and lifetimes says so, except for a tighter plan, which is measured only; where
        no plan passes, the first one is taken.
        """
        first = self._plan_in_bytes(choice, graph)
        if len(self.results) in self._tightening or first.plan is None or self._settles(graph, first.plan):
            return first
        found = self._least_left(choice, graph) or self._searched(choice, graph)
        if found is None:
            return first
        self._aim_bytes = found[0]
        return found[1]

    def _least_left(self, choice: PolicyChoice, graph: OpGraph) -> _Aimed | None:
        """The first plan that settles for the aim less the shares `LEFT`; None where none does."""
        plan_at = self._planner(choice, graph)
        for share in LEFT:
            aim = int((1 - share) * self._aim_bytes)
            try:
                answer = plan_at(aim)
            except InfeasibleBudget:
                return None
            if answer.plan is not None and self._settles(graph, answer.plan):
                return aim, answer
        return None

    def _searched(self, choice: PolicyChoice, graph: OpGraph) -> _Aimed | None:
        """Likewise of a search down to the least bytes that can be planned for."""
        plan_at = self._planner(choice, graph)
        quick_at = None if choice.solver in QUICK else self._planner(PolicyChoice(), graph)
        return planned_and_held(
            self._aim_bytes,
            least_planned(quick_at or plan_at, self._aim_bytes),
            lambda answer: self._settles(graph, answer.plan),
            plan_at,
            quick_at,
        )

    def _planner(self, choice: PolicyChoice, graph: OpGraph) -> PlanAt:
        return partial(choice.planner(self._host), graph, self._hardware)

    def _settles(self, graph: OpGraph, schedule: Schedule | None) -> bool:
        """Whether the allocator serves a step without giving anything back, once it has run; always for exact bytes."""
        return self._segments is None or held_by_steps(graph, schedule, self._segments).settles

    def _plan_in_bytes(self, choice: PolicyChoice, graph: OpGraph) -> Solution[Schedule]:
        """A plan for the budget or, where a policy alone cannot keep it, for the least budget that one can keep.

        Host memory is limited in either case; where that is what lacks, no policy is made.
        """
        try:
            return choice.planner(self._host)(graph, self._hardware, self._aim_bytes)
        except InfeasibleBudget as error:
            least = error.least_budget_bytes
            if self._host_lacks(choice, graph):
                raise InvalidInput(f"host_limit_bytes is {self._host_bytes}: {error}") from error
            if least is None or least <= self._aim_bytes:
                raise
        self.remark = self._out_of_reach(least, "policies are made for that")
        self._short = True
        self._aim_bytes = least
        return choice.planner(self._host)(graph, self._hardware, least)

    def _out_of_reach(self, least_bytes: int, then: str) -> str:
        return (
            f"no policy alone keeps an iteration within {show_bytes(self._budget_bytes)}, the least is "
            f"{show_bytes(least_bytes)}: {then}, and passive swaps do the rest"
        )

    def _host_lacks(self, choice: PolicyChoice, graph: OpGraph) -> bool:
        """Whether there is a plan for the budget that only needs more of the host."""
        if self._host_bytes is None:
            return False
        try:
            return choice.planner()(graph, self._hardware, self._aim_bytes).plan is not None
        except InfeasibleBudget:
            return False


def _misfit(policy: Policy) -> str | None:
    if policy.unseen:
        return f"{policy.unseen} of its tensors could not be recognised and stay on the device"
    return None
