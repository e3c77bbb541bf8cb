"""Prices where hosts matter: no load is excluded that a plan keeps to, and large clusters on hosts are told apart."""

import random
from collections import Counter
from collections.abc import Callable
from functools import partial

import msgspec
import numpy as np
import pytest

from experiments.bench.deep import deep_cluster
from solvers.check.replan.judge import judge_replan
from solvers.ir import Hosts, Limits, ReplanProblem, Status
from solvers.replan import ExactReplan
from solvers.replan.algorithm1 import Algorithm1
from solvers.replan.exact import market, transition
from solvers.replan.exact import solver as exact
from solvers.replan.exact.bounds import FILLING, IntArray
from solvers.replan.exact.closing import closed
from solvers.replan.exact.incumbent import Incumbent
from solvers.replan.exact.market import Market
from solvers.replan.exact.movable import Movable
from solvers.replan.exact.prices import Pricing
from solvers.replan.exact.questions import Questions
from solvers.replan.exact.steps import StepTimes
from solvers.replan.instances import Model
from solvers.replan.progress import Effort, Progress
from solvers.replan.transfer.mapping import NodeKind
from solvers.replan.transfer.owners import layer_bytes
from solvers.replan.transfer.topology import Topology
from tests.solvers.replan.brute_force import optimum, random_problem, unlike_problem

LIMITS = Limits(time_s=60)


def on_hosts(problem: ReplanProblem, nodes: int, times: int) -> ReplanProblem:
    """The same on hosts of so many nodes, so many times as fast inside, if it runs."""
    if problem.current is None:
        return problem
    return msgspec.structs.replace(problem, hosts=Hosts(nodes=nodes, bytes_per_s=times * (problem.bytes_per_s or 1)))


def small(seed: int, cluster: Callable[[int], ReplanProblem]) -> ReplanProblem:
    draw = random.Random(seed)
    return on_hosts(cluster(seed), draw.choice([2, 3, 4]), draw.choice([2, 3, 9]))


@pytest.mark.parametrize("cluster", [random_problem, unlike_problem])
def test_no_load_is_excluded_that_a_plan_keeps_to(cluster: Callable[[int], ReplanProblem]) -> None:
    """Plans of two solvers, asked for with their own step and the load of their own busiest node; less is excluded."""
    asked = less = 0
    for problem in (small(seed, cluster) for seed in range(120)):
        if problem.hosts is None:
            continue
        for solver in (ExactReplan(), Algorithm1()):
            plan = solver.solve(problem, LIMITS).plan
            if plan is None or plan.policy == "reroute" or plan.transfers is None:
                continue
            topology, sizes, loads = Topology.of(problem), layer_bytes(problem), Counter[tuple[int, str]]()
            for move in plan.transfers:
                for end in ((move.source, "sends"), (move.target, "receives")):
                    loads[end] += sizes[move.layer] * topology.price(move.source, move.target)
            load, steps = max(loads.values(), default=0), StepTimes(problem, Movable(problem), 2000, lambda: False)
            step = steps.step_us(tuple((one.layers, one.microbatches) for one in plan.pipelines))
            every = Questions(Incumbent(problem, steps, Progress(LIMITS, None))).market
            within = steps.within(step, load // topology.least_price) or []
            for one, most in ((every, load), (every.at_one_rate, load // topology.least_price)):
                counts = [partial(steps.most_within, limit_us=some.limit_us) for some in within]
                pricing = [
                    Pricing(one, most, some, lambda: False, None, count)
                    for some, count in zip(within, counts, strict=True)
                ]
                left = [each for each in pricing if each.excluded([]) is not None]
                assert not within or not all(closed(each).excluded for each in left), problem.name
                asked += bool(within)
            less += (
                bool(within)
                and load > 0
                and not any(Pricing(every, load - 1, some, lambda: False).excluded([]) for some in within)
            )
    assert asked > 10 and less > 5, (asked, less)


def test_no_plan_is_better_than_what_prices_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but prices bounds transitions; every plan of tiny clusters was tried."""
    monkeypatch.setattr(transition, "_SMALL", 0)
    monkeypatch.setattr(transition._Search, "_bound", lambda self, least: 0)
    for seed in range(40):
        for problem in (small(seed, random_problem), small(seed, unlike_problem)):
            answer, best = ExactReplan().solve(problem, LIMITS), optimum(problem)
            if best is not None and answer.bound is not None and answer.objective is not None:
                assert answer.bound <= best <= answer.objective, problem.name


@pytest.mark.parametrize(("seed", "nodes", "times"), [(63005, 8, 4), (63024, 6, 2)])
def test_whole_objectives_of_large_clusters_on_hosts_are_proven(seed: int, nodes: int, times: int) -> None:
    """1,275 and 1,855 nodes: 1.8e-5 and 1.1e-4 were open where all links were counted as the quicker ones."""
    problem = on_hosts(deep_cluster(seed), nodes, times)
    answer = ExactReplan(effort=1.5).solve(problem, LIMITS)
    assert answer.plan is not None and answer.status is Status.OPTIMAL
    assert judge_replan(problem, answer.plan).objective_us == answer.objective


def test_little_is_counted_on_hosts_beyond_the_effort(monkeypatch: pytest.MonkeyPatch) -> None:
    """1,559 nodes: 2.2 s were counted for an effort of one."""
    efforts = list[Effort]()

    class Noted(Effort):
        def __init__(self, most_us: float) -> None:
            super().__init__(most_us)
            efforts.append(self)

    monkeypatch.setattr(exact, "Effort", Noted)
    answer = ExactReplan().solve(on_hosts(deep_cluster(86010), 8, 4), LIMITS)
    assert "effort of 1 is spent" in (answer.reason or "")
    assert efforts[0].spent_us < 1e6


def three_layers() -> ReplanProblem:
    """A model of three layers before any failure."""
    return Model(layers=3).problem("three", 3, 2, 8)


def flat_market(held: dict[tuple[int, int], int], sizes: list[int]) -> Market:
    """Nodes of which so many hold the same, links of one rate."""
    kinds = [NodeKind(run, frozenset(), tuple(range(count))) for run, count in held.items()]
    return Market(three_layers(), kinds, sizes, Topology.flat(1))


def test_an_owner_sends_whole_layers() -> None:
    market = flat_market({(0, 3): 1}, [5, 2, 2])
    assert market.loads(10) == [0, 2, 4, 5, 6, 7, 8, 9, 10]
    assert market.patterns((0, 3), 9) == [((5, 0), (2, 4)), ((5, 1), (2, 2))]


@pytest.mark.skipif(FILLING is None, reason="the native extension was not built: run make build")
def test_the_native_extension_says_the_same_prices_of_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(60):
        problem, draw = small(seed, (random_problem, unlike_problem)[seed % 2]), np.random.default_rng(seed)
        if problem.current is None:
            continue
        steps = StepTimes(problem, Movable(problem), 2000, lambda: False)
        every = Questions(Incumbent(problem, steps, Progress(LIMITS, None))).market
        for some in (every, every.at_one_rate, every.by_host):
            nodes, sent = draw.integers(0, 9, len(some.runs)), draw.integers(0, 9, len(some.weights))
            load, said = int(draw.choice(some.lacked.ravel())), list[IntArray]()
            for native in (FILLING, None):
                monkeypatch.setattr(market, "FILLING", native)
                said.append(some.stage_prices(nodes, sent, load, seed % 3 + 1))
            assert (said[0] == said[1]).all(), problem.name
