"""The bound on every step: below each system's step, and met where nothing must be recomputed."""

import pytest

from experiments.hardware import read_hardware
from experiments.pipeline.simulate import Step, pipeline_on, simulate
from experiments.shapes import read_shape
from solvers.ir.solution import Limits
from solvers.partition.bounds import best_possible, least_critical_us, without_recomputation
from solvers.partition.pipeline import Pipeline
from solvers.partition.policies import Cut, System, decide
from solvers.partition.stages import Stages
from solvers.recompute.layer import Heu
from solvers.timeline.pipeline.inputs import Hide
from solvers.workload import Parallelism


def pipeline(model: str, microbatch: int) -> Pipeline:
    cut = Parallelism(tensor=4, pipeline=4, microbatch=microbatch, microbatches=8)
    return pipeline_on(read_shape(model), read_hardware("lynx-nvlink"), cut)


@pytest.fixture(scope="module")
def tight() -> Pipeline:
    return pipeline("gpt-23b", 16)


@pytest.mark.parametrize("policy", ["full", "adapipe", "checkmate-layer", "block", "heu", "heu-pair", "heu-mix"])
@pytest.mark.parametrize(("cut", "hide"), [("balanced", "none"), ("bound", "cooldown")])
def test_no_system_beats_the_bound(tight: Pipeline, policy: str, cut: Cut, hide: Hide) -> None:
    bound = best_possible(tight.problem, "cooldown")
    step = simulate(tight, System(policy, cut, hide))
    assert isinstance(step, Step) and bound.bound_us is not None
    assert step.makespan_us >= bound.bound_us
    if policy == "heu-mix" and cut == "bound":
        assert step.makespan_us < 1.03 * bound.bound_us


def test_hiding_in_every_stall_can_only_lower_it(tight: Pipeline) -> None:
    bounds = [best_possible(tight.problem, hide).bound_us or 0 for hide in ("none", "cooldown", "all")]
    free = without_recomputation(tight.problem).bound_us or 0
    assert bounds[0] >= bounds[1] >= bounds[2] > free > 0


def test_it_is_met_where_everything_fits() -> None:
    roomy = pipeline("gpt-1.3b", 1)
    assert best_possible(roomy.problem, "none").bound_us == without_recomputation(roomy.problem).bound_us
    step = simulate(roomy, System("heu", "bound"))
    assert isinstance(step, Step) and step.makespan_us == best_possible(roomy.problem, "none").bound_us


def test_each_stages_bound_is_heus(tight: Pipeline) -> None:
    for stage, layers in ((0, 12), (1, 13), (2, 13), (3, 12)):
        problem = tight.heu_problem(stage, layers)
        mix, known = Heu(groups=None).solve(problem, Limits()), least_critical_us(problem)
        assert mix.objective is not None and known is not None
        assert known <= mix.objective
        assert known > 0 or stage == 3
    assert least_critical_us(tight.heu_problem(0, 40)) is None


def test_nothing_fits() -> None:
    assert best_possible(pipeline("gpt-23b", 32).problem, "cooldown").layers is None


def test_leaving_out_what_cannot_win_changes_nothing(tight: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tables hold only as many layers as the even partition's step allows: the answers are those of all layers."""
    systems = [System("heu", cut, "cooldown") for cut in ("dp", "greedy-lynx", "fastest")]
    pipelines = [tight, pipeline("gpt-1.3b", 8)]
    bounds = [best_possible(one.problem, "cooldown").bound_us for one in pipelines]
    steps = [simulate(one, system) for one in pipelines for system in systems]
    reach = Stages(pipelines[1].problem, decide("heu")).reach()
    assert reach is not None and 6 < reach < 21
    whole = Stages.rows
    monkeypatch.setattr(Stages, "reach", lambda self: None)
    monkeypatch.setattr(Stages, "rows", lambda self, most=None: whole(self))
    assert [best_possible(one.problem, "cooldown").bound_us for one in pipelines] == bounds
    for found, one in zip(steps, [simulate(one, system) for one in pipelines for system in systems], strict=True):
        assert isinstance(found, Step) and isinstance(one, Step)
        assert (found.layers, found.makespan_us) == (one.layers, one.makespan_us)
