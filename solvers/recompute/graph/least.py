"""A lower bound on the least feasible budget of a `recompute-graph` problem, without a search (README, (L))."""

from solvers.ir.recompute import RecomputeGraphProblem
from solvers.recompute.graph.replay import Instance, instance


def forced(given: Instance) -> list[set[int]]:
    """By stage, ops that every valid plan keeps at its start.

    A communication's inputs are kept when it begins, and of every stage those that may not run again in it; and what
    must be kept at the start of stage t + 1 is kept at the start of stage t too where stage t can never compute it
    again: it may not run twice there, or t is a communication and it is one, too, or longer than t.
    """
    count = len(given)
    kept: list[set[int]] = [set() for _ in range(count + 1)]
    for t in reversed(range(count)):
        kept[t] = {j for j in given.inputs[t] if given.comm[t] or not given.may_replay(t, j)}
        kept[t] |= {i for i in kept[t + 1] if i < t and not _may_run(given, t, i)}
    return kept[:count]


def _may_run(given: Instance, t: int, i: int) -> bool:
    in_time = not given.comm[t] or not (given.comm[i] or given.time[i] > given.time[t])
    return in_time and given.may_replay(t, i)


def working_bytes(given: Instance) -> list[int]:
    """By stage, static memory and what is in use in every valid plan when op t has been allocated in stage t.

    That is its output, its inputs, and what the next stage is forced to find: none of these is freed before op t's end.
    """
    kept = [*forced(given), set[int]()]
    return [given.static + sum(given.size[i] for i in {t, *given.inputs[t], *kept[t + 1]}) for t in range(len(given))]


def least_budget_bytes(problem: RecomputeGraphProblem | Instance) -> int:
    """No budget below this one is feasible: the largest working set. The least feasible budget may be larger."""
    given = problem if isinstance(problem, Instance) else instance(problem)
    return max(working_bytes(given))
