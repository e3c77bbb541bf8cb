"""A simulated step agrees with the rooms that it is made of: the judge, the memory line, the recurrence."""

import re
from collections.abc import Mapping

import pytest

from experiments.hardware import read_hardware
from experiments.pipeline.simulate import Step, judged, pipeline_on, simulate
from experiments.shapes import read_shape
from solvers.check import check_plan
from solvers.ir import InvalidInput
from solvers.ir.codec import plan_file
from solvers.ir.recompute import RecomputeLayerPlan
from solvers.ir.solution import Limits, Solution, Status
from solvers.partition.pipeline import Pipeline
from solvers.partition.policies import SYSTEMS, System, decide
from solvers.partition.stages import Stages
from solvers.partition.steps import Unfit, fastest, step_of
from solvers.recompute.layer import Heu
from solvers.workload import Parallelism


def pipeline(model: str, microbatch: int, microbatches: int = 16) -> Pipeline:
    cut = Parallelism(tensor=4, pipeline=4, microbatch=microbatch, microbatches=microbatches)
    return pipeline_on(read_shape(model), read_hardware("lynx-nvlink"), cut)


@pytest.fixture(scope="module")
def tight() -> Pipeline:
    """GPT-13B at microbatch 32: selective does not fit, HEU recomputes on the critical path of every stage."""
    return pipeline("gpt-13b", 32)


@pytest.fixture(scope="module")
def steps(tight: Pipeline) -> Mapping[str, Step | Unfit]:
    return {name: simulate(tight, system) for name, system in SYSTEMS.items()}


def test_systems_stand_in_the_papers_order(steps: Mapping[str, Step | Unfit]) -> None:
    full, adapipe, lynx = (steps[name] for name in ("full", "adapipe", "lynx"))
    assert isinstance(full, Step) and isinstance(adapipe, Step) and isinstance(lynx, Step)
    assert full.samples_per_s < adapipe.samples_per_s < lynx.samples_per_s
    assert sum(full.critical_us) > sum(adapipe.critical_us) > sum(lynx.critical_us) > 0
    assert full.samples_per_s == 32 * 16 * 1e6 / full.makespan_us


def test_a_system_that_does_not_fit_says_how_much_it_needs(tight: Pipeline, steps: Mapping[str, Step | Unfit]) -> None:
    selective = steps["selective"]
    assert isinstance(selective, Unfit)
    found = re.search(r"^stage 0 with 10 layers: selective needs (\d+) bytes, but the budget is", selective.reason)
    assert found
    need = int(found[1])
    enough = Pipeline(tight.shape, tight.parallelism, tight.machine, need)
    assert decide("selective")(enough.heu_problem(0, 10)) is not None
    scarce = Pipeline(tight.shape, tight.parallelism, tight.machine, need - 1)
    assert decide("selective")(scarce.heu_problem(0, 10)) is None


def test_where_nothing_fits_the_least_budget_is_told() -> None:
    found = simulate(pipeline("gpt-23b", 32), SYSTEMS["lynx"])
    assert isinstance(found, Unfit)
    assert found.reason.startswith(
        "no partition fits, and of an even one stage 0 with 12 layers: the budget is 4294967"
    )
    least = Heu().solve(pipeline("gpt-23b", 32).heu_problem(0, 12), Limits()).least_budget_bytes
    assert f"the least feasible one exactly {least} bytes" in found.reason


def test_full_recomputation_runs_every_operator_again(tight: Pipeline, steps: Mapping[str, Step | Unfit]) -> None:
    full = steps["full"]
    assert isinstance(full, Step)
    layers = tight.costs.forward_us * 40
    assert sum(full.critical_us) == 16 * layers
    assert [one.kept_us for one in full.stages] == [0, 0, 0, 0]


@pytest.mark.parametrize("name", ["full", "adapipe", "lynx"])
def test_no_stage_exceeds_its_memory(steps: Mapping[str, Step | Unfit], name: str, tight: Pipeline) -> None:
    step = steps[name]
    assert isinstance(step, Step)
    assert [one.in_flight for one in step.memory] == [4, 3, 2, 1]
    for stage, one in enumerate(step.memory):
        held = step.stages[stage].memory
        peak = held.static_bytes + (4 - stage) * held.stored_bytes + held.forward_hidden_bytes + held.working_bytes
        assert one.peak_bytes == peak <= tight.budget_bytes


def test_lookups_are_heus_answers(tight: Pipeline) -> None:
    stages = Stages(tight.problem, decide("heu"), as_printed=True)
    for stage, layers in ((0, 9), (1, 10), (2, 11), (3, 10)):
        problem = tight.heu_problem(stage, layers)
        one = stages.choice(stage, layers)
        assert one is not None
        assert one.critical_us == Heu().solve(problem, Limits()).objective
        plan = RecomputeLayerPlan(groups=one.groups)
        solution = Solution(status=Status.FEASIBLE, plan=plan, objective=one.critical_us, solver="heu")
        assert check_plan(problem, plan_file(solution, problem.KIND, None)).clean
        total = one.critical_us + one.forward_hidden_us + one.backward_hidden_us + one.kept_us
        assert total == layers * tight.costs.forward_us


def test_hidden_and_exposed_recomputation_add_up(steps: Mapping[str, Step | Unfit]) -> None:
    step = steps["lynx"]
    assert isinstance(step, Step)
    for stage, one in enumerate(step.stages):
        planned = 16 * (one.critical_us + one.forward_hidden_us + one.backward_hidden_us)
        done = step.critical_us[stage] + int(step.times.hidden_us[stage]) + step.window_hidden_us(stage)
        assert done == planned
        assert step.bubble_us[stage] >= 0


def test_the_fastest_partition_is_no_slower_than_any_other(tight: Pipeline) -> None:
    stages = Stages(tight.problem, decide("heu"), as_printed=True)
    exact = fastest(stages, System("heu", "fastest", "cooldown"))
    assert exact.exact and exact.layers is not None
    best = judged(tight, step_of(stages, System("heu", "fastest", "cooldown"), exact.layers))
    assert isinstance(best, Step) and best.makespan_us == exact.makespan_us
    for cut in ("balanced", "dp", "greedy-lynx"):
        other = simulate(tight, System("heu", cut, "cooldown"))
        assert isinstance(other, Step) and other.makespan_us >= best.makespan_us


def test_fewer_layers_than_stages_is_told() -> None:
    cut = Parallelism(tensor=4, pipeline=30, microbatch=1, microbatches=2)
    long = pipeline_on(read_shape("gpt-1.3b"), read_hardware("lynx-nvlink"), cut)
    for name in ("full", "lynx"):
        found = simulate(long, SYSTEMS[name])
        assert isinstance(found, Unfit)
        assert "24 layers cannot fill 30 stages" in found.reason


def test_an_unknown_policy_names_the_nearest() -> None:
    with pytest.raises(InvalidInput, match="adapipe"):
        decide("adapip")
