"""Hosts: nodes that are faster among each other. Every solver, the judge, brute force, and what hosts gain."""

import random

import msgspec
import pytest

from solvers.check.replan.judge import judge_replan
from solvers.ir import Hosts, InvalidInput, Limits, ReplanProblem, Status
from solvers.replan.ahead import PlanCache, after_failure, next_failures
from solvers.replan.algorithm1 import Algorithm1
from solvers.replan.exact.solver import ExactReplan
from solvers.replan.instances import INSTANCES
from solvers.replan.timeline.simulated import simulate_step
from tests.solvers.replan.brute_force import optimum, random_problem, unlike_problem
from tests.solvers.replan.clusters import grid
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


def test_what_the_problem_allows_is_counted_exactly() -> None:
    """Rates as 16777216 to 1953125 and 2³² bytes: the most that a problem may have, and one byte more is refused."""
    hosts = Hosts(nodes=3, bytes_per_s=200 * 2**30)
    problem = msgspec.structs.replace(
        grid(4, 2, 8, 16, failed=[5], bytes_per_s=25 * 10**9, memory_bytes=2**33),
        layer_static_bytes=2**29,
        hosts=hosts,
    )
    best = ExactReplan().solve(problem, LIMITS)
    assert best.plan is not None
    verdict = judge_replan(problem, best.plan)
    assert (verdict.violations, verdict.objective_us) == ((), best.objective)
    with pytest.raises(InvalidInput, match="4294967297 bytes of states allow at most 16777215"):
        msgspec.structs.replace(problem, first_static_bytes=1)


def test_on_hosts_every_single_failure_finds_its_plan() -> None:
    """8 x 4 nodes on hosts of 8: alike pipelines have unlike neighbours, and each node is foreseen by itself."""
    running = grid(4, 8, 8, 32, hosts=Hosts(nodes=8, bytes_per_s=8 * 10**9))
    cache = PlanCache(Algorithm1())
    assert cache.fill(running, LIMITS) == 32
    for node in range(32):
        problem = after_failure(running, (node,))
        answer = cache.plan(problem)
        assert answer is not None and answer.plan is not None
        verdict = judge_replan(problem, answer.plan)
        assert (verdict.violations, verdict.objective_us) == ((), answer.objective)


def test_on_hosts_the_order_in_which_nodes_fail_does_not_matter() -> None:
    hosts = Hosts(nodes=2, bytes_per_s=2 * 10**9)
    running = grid(2, 2, 4, 4, hosts=hosts, expected_interval_us=12 * 10**8)
    cache = PlanCache(Algorithm1())
    cache.fill(running, LIMITS, most_losses=2)
    assert cache.plan(after_failure(after_failure(running, (3,)), (0,))) is not None


def test_on_hosts_too_many_failures_are_not_listed() -> None:
    running = grid(16, 32, 32, 32, hosts=Hosts(nodes=8, bytes_per_s=2 * 10**9))
    assert len(next_failures(running)) == 512
    with pytest.raises(InvalidInput, match=r"131328 sets of up to 2 nodes can fail.* lower most_losses"):
        next_failures(running, 2)


@pytest.mark.parametrize("nodes", [1, 8, 100_000])
def test_hosts_of_one_node_or_of_all_are_one_rate(nodes: int) -> None:
    problem = INSTANCES["replan-8-to-7"]()
    rate = problem.bytes_per_s or 0
    inside = rate if nodes == 1 else 2 * rate
    doubled = msgspec.structs.replace(problem, bytes_per_s=inside)
    hosted = msgspec.structs.replace(problem, hosts=Hosts(nodes=nodes, bytes_per_s=inside))
    assert ExactReplan().solve(hosted, LIMITS).objective == ExactReplan().solve(doubled, LIMITS).objective
