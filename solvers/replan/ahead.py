"""Plans computed ahead for the likely next failures, so that a failure finds its plan in a table (paper, IV-A)."""

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain, combinations
from math import comb, factorial, prod

import msgspec

from solvers.ir.errors import InvalidInput
from solvers.ir.replan import CurrentState, ReplanPlan, ReplanProblem
from solvers.ir.solution import Limits, Solution, Solver, Status, Watch
from solvers.replan.answers import better
from solvers.replan.structure import Kind, NamelessPlan, Structure, kinds_of, nameless, structure_of
from solvers.replan.transfer.owners import idle_nodes

Loss = tuple[Kind, tuple[int, ...]]
"""One pipeline's loss: its kind before, and the stages whose nodes fail."""

_MOST_ON_HOSTS = 100_000
"""More failures one by one are not listed: `PlanCache` keeps fewer plans."""


@dataclass(frozen=True)
class NextFailure:
    """A class of failures that lead to one structure: representative nodes, and how likely the class is.

    `probability`: of all sets of `losses` nodes alive, each equally likely, the share that this class is.
    """

    failed: tuple[int, ...]
    losses: int
    probability: Fraction


@dataclass(frozen=True)
class _Kept:
    """An answer, its plan without names, and what ended the search: `spent_s`, where time or the watcher did; `gap`."""

    solution: Solution[ReplanPlan]
    plan: NamelessPlan | None
    spent_s: float | None
    gap: float

    def may_improve(self, limits: Limits) -> bool:
        """Whether these limits allow more than those that ended the search."""
        if self.solution.status in (Status.OPTIMAL, Status.INFEASIBLE):
            return False
        return limits.gap < self.gap or (self.spent_s is not None and limits.time_s > self.spent_s)

    def named(self, problem: ReplanProblem, structure: Structure, began: float) -> Solution[ReplanPlan]:
        """The answer on the nodes of a problem of this structure, looked up since `began`."""
        plan = None if self.plan is None else self.plan.named(problem, structure)
        return msgspec.structs.replace(self.solution, plan=plan, solve_time_s=time.perf_counter() - began)


class PlanCache:
    """A solver's answers by structure: two problems that differ by the names of nodes only share one plan.

    `solver` may be any of this room; `most` answers are kept, the oldest going first. A lookup costs no search. To
    fill it beside training, call `fill` in a thread of your own: a lookup sees an answer entirely or not at all.
    """

    def __init__(self, solver: Solver[ReplanProblem, Solution[ReplanPlan]], most: int = 10_000) -> None:
        if most < 1:
            raise InvalidInput(f"most is {most}, below 1: keep at least 1 plan")
        self._solver = solver
        self._most = most
        self._known: dict[object, _Kept] = {}

    def __len__(self) -> int:
        """How many structures have an answer."""
        return len(self._known)

    def plan(self, problem: ReplanProblem) -> Solution[ReplanPlan] | None:
        """The answer known for the problem's structure, on the problem's nodes; None where there is none.

        It may be one that limits have ended: that says `status`, and `solve` with more time goes on.
        """
        began = time.perf_counter()
        structure = structure_of(problem)
        known = self._known.get(structure.key)
        return None if known is None else known.named(problem, structure, began)

    def solve(self, problem: ReplanProblem, limits: Limits, watch: Watch | None = None) -> Solution[ReplanPlan]:
        """The known answer, or the solver's, which is remembered.

        What limits or the watcher have ended is searched again where these limits allow more; the better answer stays.
        """
        began = time.perf_counter()
        structure = structure_of(problem)
        known = self._known.get(structure.key)
        if known is not None and not known.may_improve(limits):
            return known.named(problem, structure, began)
        watched = None if watch is None else _Watched(watch)
        solution = self._solver.solve(problem, limits, watched)
        spent_s = time.perf_counter() - began
        ended = spent_s >= limits.time_s or (watched is not None and watched.stopped)
        if known is not None:
            solution = better(solution, known.named(problem, structure, began))
        plan = None if solution.plan is None else nameless(problem, structure, solution.plan)
        while structure.key not in self._known and len(self._known) >= self._most:
            del self._known[next(iter(self._known))]
        self._known[structure.key] = _Kept(solution, plan, spent_s if ended else None, limits.gap)
        return solution

    def fill(self, running: ReplanProblem, limits: Limits, most_losses: int = 1, watch: Watch | None = None) -> int:
        """Answer the next failures of a running state, likely ones first, within `limits.time_s`.

        Returns how many answers are new, or were searched again because earlier limits had ended them. Where `watch`
        stops a search, no other one is begun.
        """
        began = time.perf_counter()
        new = 0
        for failure in next_failures(running, most_losses):
            spent_s = time.perf_counter() - began
            left = limits.time_s - spent_s
            if left <= 0 or failure.losses >= running.nodes or (watch and watch(None, None, spent_s)):
                break
            problem = after_failure(running, failure.failed)
            known = self._known.get(structure_of(problem).key)
            allowed = msgspec.structs.replace(limits, time_s=left)
            if known is None or known.may_improve(allowed):
                self.solve(problem, allowed, watch)
                new += 1
        return new


class _Watched:
    """A watcher, and whether it has stopped the search."""

    def __init__(self, watch: Watch) -> None:
        self._watch, self.stopped = watch, False

    def __call__(self, incumbent: float | None, bound: float | None, elapsed_s: float) -> bool:
        self.stopped = self._watch(incumbent, bound, elapsed_s) or self.stopped
        return self.stopped


def after_failure(running: ReplanProblem, failed: tuple[int, ...]) -> ReplanProblem:
    """The problem that the failure of these nodes makes of a running state.

    Those with a stage join `current.failed`, idle ones are only counted out; the expected interval grows as a constant
    rate per node has it, rounded down. Raises `InvalidInput` where there is no `current`, no node is left, or a node
    is named that is not alive, or named twice.
    """
    current = _current_of(running)
    alive = {node for pipeline in current.pipelines for node in pipeline.nodes}.difference(current.failed)
    for node, times in Counter(failed).items():
        if times > 1:
            raise InvalidInput(f"node {node} fails {times} times at once: name each node that fails once")
        if node not in alive and node not in idle_nodes(running):
            raise InvalidInput(f"node {node} fails, but is not one of the {running.nodes} alive: name those that are")
    left = running.nodes - len(failed)
    if left < 1:
        raise InvalidInput(f"{len(failed)} nodes fail of {running.nodes} alive: at least one must stay")
    lost = set(failed)
    staged = [node for pipeline in current.pipelines for node in pipeline.nodes if node in lost]
    return msgspec.structs.replace(
        running,
        nodes=left,
        current=CurrentState(pipelines=current.pipelines, failed=(*current.failed, *staged)),
        expected_interval_us=(running.expected_interval_us or 0) * running.nodes // left,
    )


def _current_of(running: ReplanProblem) -> CurrentState:
    if running.current is None:
        raise InvalidInput("a problem without current has no next failure: give the running pipelines")
    return running.current


def next_failures(running: ReplanProblem, most_losses: int = 1) -> tuple[NextFailure, ...]:
    """A representative of every class of 1 … `most_losses` nodes failing; fewer losses first, then the likelier class.

    A class is what is left: how many pipelines of which kinds, with which stages gone, and how many idle nodes. On
    `hosts`, where nodes stand matters too: there every set of nodes with a stage is a class of its own, and
    `InvalidInput` is raised where these are more than 100,000.
    """
    current = _current_of(running)
    if most_losses < 1:
        raise InvalidInput(f"most_losses is {most_losses}, below 1: foresee at least 1")
    if running.hosts is not None:
        return _one_by_one(running, current, most_losses)
    kinds = kinds_of(running)
    idle = idle_nodes(running)
    classes: dict[tuple[int, tuple[Loss, ...]], None] = {(0, ()): None}
    found: list[NextFailure] = []
    for losses in range(1, min(most_losses, running.nodes) + 1):
        grown = chain.from_iterable(_one_more(kinds, len(idle), *known) for known in classes)
        classes = dict.fromkeys(grown)
        ways: dict[object, tuple[tuple[int, ...], int]] = {}
        for spare, lost in classes:
            outcome = (spare, _outcome(lost))
            nodes, others = ways.get(outcome, ((*_nodes(kinds, lost), *idle[:spare]), 0))
            ways[outcome] = (nodes, others + _count(kinds, len(idle), spare, lost))
        total = comb(running.nodes, losses)
        found += [NextFailure(nodes, losses, Fraction(count, total)) for nodes, count in ways.values()]
    return _likelier_first(found)


def _one_by_one(running: ReplanProblem, current: CurrentState, most_losses: int) -> tuple[NextFailure, ...]:
    """Each set of nodes that have a stage, with each number of idle ones: these are only counted."""
    idle, gone = idle_nodes(running), set(current.failed)
    staged = [node for pipeline in current.pipelines for node in pipeline.nodes if node not in gone]
    shapes = [
        (losses, spare)
        for losses in range(1, min(most_losses, running.nodes) + 1)
        for spare in range(max(0, losses - len(staged)), min(losses, len(idle)) + 1)
    ]
    count = sum(comb(len(staged), losses - spare) for losses, spare in shapes)
    if count > _MOST_ON_HOSTS:
        raise InvalidInput(
            f"{count} sets of up to {most_losses} nodes can fail, and hosts tell them apart, but at most "
            f"{_MOST_ON_HOSTS} are listed: lower most_losses"
        )
    found = [
        NextFailure((*lost, *idle[:spare]), losses, Fraction(comb(len(idle), spare), comb(running.nodes, losses)))
        for losses, spare in shapes
        for lost in combinations(staged, losses - spare)
    ]
    return _likelier_first(found)


def _likelier_first(found: list[NextFailure]) -> tuple[NextFailure, ...]:
    """Grouped by number of losses, fewer first."""
    return tuple(sorted(found, key=lambda failure: (failure.losses, -failure.probability, failure.failed)))


def _outcome(lost: tuple[Loss, ...]) -> frozenset[tuple[Kind, int]]:
    """How many more or fewer pipelines of each kind run afterwards; different losses may have the same effect."""
    change: Counter[Kind] = Counter()
    for kind, stages in lost:
        layers, microbatches, gone = kind
        change[kind] -= 1
        change[layers, microbatches, tuple(sorted((*gone, *stages)))] += 1
    return frozenset((kind, count) for kind, count in change.items() if count)


def _one_more(
    kinds: dict[Kind, list[tuple[int, ...]]], idle: int, spare: int, lost: tuple[Loss, ...]
) -> Iterator[tuple[int, tuple[Loss, ...]]]:
    """The classes with one more node lost: an idle one, one of a pipeline hit already, or one of another."""
    if spare < idle:
        yield spare + 1, lost
    hit = Counter(kind for kind, _ in lost)
    for kind, alike in kinds.items():
        if hit[kind] < len(alike):
            for stage in _alive(kind):
                yield spare, tuple(sorted((*lost, (kind, (stage,)))))
    for number, (kind, stages) in enumerate(lost):
        for stage in set(_alive(kind)) - set(stages):
            others = (*lost[:number], *lost[number + 1 :])
            yield spare, tuple(sorted((*others, (kind, tuple(sorted((*stages, stage)))))))


def _alive(kind: Kind) -> list[int]:
    layers, _, gone = kind
    return [stage for stage in range(len(layers)) if stage not in gone]


def _nodes(kinds: dict[Kind, list[tuple[int, ...]]], lost: tuple[Loss, ...]) -> tuple[int, ...]:
    """Nodes whose failure is this loss: of each kind the first pipelines."""
    hit: Counter[Kind] = Counter()
    nodes: list[int] = []
    for kind, stages in lost:
        names = kinds[kind][hit[kind]]
        hit[kind] += 1
        nodes += [names[stage] for stage in stages]
    return tuple(nodes)


def _count(kinds: dict[Kind, list[tuple[int, ...]]], idle: int, spare: int, lost: tuple[Loss, ...]) -> int:
    """Number of ways in which this loss can happen: which idle nodes, and which pipelines of a kind take which loss."""
    ways = comb(idle, spare)
    hit = Counter(kind for kind, _ in lost)
    for kind, number in hit.items():
        size = len(kinds[kind])
        alike = Counter(stages for other, stages in lost if other == kind)
        ways *= factorial(size) // factorial(size - number) // prod(map(factorial, alike.values()))
    return ways
