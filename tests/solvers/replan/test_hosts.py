"""Hosts: nodes that are faster among each other. Every solver, the judge, brute force, and what hosts gain."""

import random

import msgspec
import pytest

from solvers.check.replan import judge_replan
from solvers.ir import Hosts, Limits, ReplanProblem, Status
from solvers.replan.ahead import PlanCache
from solvers.replan.algorithm1 import Algorithm1
from solvers.replan.exact.solver import ExactReplan
from solvers.replan.instances import INSTANCES
from solvers.replan.timeline.simulated import simulate_step
from tests.solvers.replan.brute_force import optimum, random_problem, unlike_problem
from tests.solvers.replan.test_solvers import agree

LIMITS = Limits(time_s=20)


def on_hosts(problem: ReplanProblem, seed: int) -> ReplanProblem:
    """The same cluster on hosts of two or three nodes, two to nine times as fast inside."""
    source = random.Random(seed)
    within = Hosts(nodes=source.choice([2, 3]), bytes_per_s=(problem.bytes_per_s or 1) * source.choice([2, 3, 9]))
    return msgspec.structs.replace(problem, hosts=within)


def running(seeds: range) -> list[ReplanProblem]:
    """Tiny running clusters, alike and unlike ones in turn."""
    problems = [(random_problem if seed % 2 else unlike_problem)(seed) for seed in seeds]
    return [on_hosts(problem, number) for number, problem in enumerate(problems) if problem.current is not None]


def test_tiny_clusters_on_hosts_are_solved_as_well_as_brute_force_can() -> None:
    """Never a bound above the best decision; what is called optimal is; and nearly everything is."""
    proven = 0
    problems = running(range(1000, 1100))
    for problem in problems:
        best, least = agree(problem), optimum(problem)
        assert (best.status is Status.INFEASIBLE) == (least is None), problem.name
        if least is not None:
            assert best.objective is not None and best.bound is not None
            assert best.bound <= least <= best.objective, problem.name
            assert best.objective == least or best.status is Status.FEASIBLE, problem.name
        proven += best.status is not Status.FEASIBLE
    assert proven >= 0.95 * len(problems)


def test_hosts_shorten_a_transition_and_never_lengthen_one() -> None:
    slow = INSTANCES["replan-8-to-7"]()
    fast = msgspec.structs.replace(slow, hosts=Hosts(nodes=8, bytes_per_s=8 * (slow.bytes_per_s or 0)))
    one, other = (ExactReplan().solve(problem, LIMITS) for problem in (slow, fast))
    assert one.objective is not None and other.objective is not None and other.objective < one.objective
    assert other.plan is not None
    simulated = simulate_step(fast, other.plan)
    assert simulated.modelled_transfer_us <= simulated.transfer_us
    at_one_rate = judge_replan(slow, other.plan).objective_us
    assert at_one_rate is not None and at_one_rate >= one.objective


def test_plans_of_hosts_are_remembered_for_these_very_nodes() -> None:
    """Another node failed, on a host with other neighbours: what was planned for one is no plan for the other."""
    cache = PlanCache(Algorithm1())
    problem = msgspec.structs.replace(
        INSTANCES["replan-8-to-7"](), hosts=Hosts(nodes=3, bytes_per_s=100_000_000_000), expected_interval_us=10**10
    )
    assert problem.current is not None
    first = cache.solve(problem, LIMITS)
    again = cache.plan(problem)
    assert again is not None and again.plan == first.plan
    elsewhere = msgspec.structs.replace(problem.current, failed=(3,))
    assert cache.plan(msgspec.structs.replace(problem, current=elsewhere)) is None
    flat = msgspec.structs.replace(problem, hosts=None)
    cache.solve(flat, LIMITS)
    assert cache.plan(msgspec.structs.replace(flat, current=elsewhere)) is not None


@pytest.mark.parametrize("nodes", [1, 8, 100_000])
def test_hosts_of_one_node_or_of_all_are_one_rate(nodes: int) -> None:
    problem = INSTANCES["replan-8-to-7"]()
    rate = problem.bytes_per_s or 0
    inside = rate if nodes == 1 else 2 * rate
    doubled = msgspec.structs.replace(problem, bytes_per_s=inside)
    hosted = msgspec.structs.replace(problem, hosts=Hosts(nodes=nodes, bytes_per_s=inside))
    assert ExactReplan().solve(hosted, LIMITS).objective == ExactReplan().solve(doubled, LIMITS).objective
