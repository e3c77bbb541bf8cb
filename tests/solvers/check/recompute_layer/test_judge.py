"""The recompute-layer judge: a story by hand, and each rule broken once."""

from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from solvers.check.recompute_layer.judge import judge_recompute_layer
from solvers.ir import LayerGroup, LayerOp, RecomputeLayerPlan, RecomputeLayerProblem, Window
from tests.strategies import recompute_layer_plans, recompute_layer_problems


def op(time_us: int, output_bytes: int, *inputs: int, comm: bool = False, needed: bool = True) -> LayerOp:
    return LayerOp(name="op", time_us=time_us, output_bytes=output_bytes, inputs=inputs, comm=comm, needed=needed)


def window(phase: Literal["forward", "backward", "stall"], time_us: int) -> Window:
    return Window(name=phase, phase=phase, time_us=time_us)


STORY = RecomputeLayerProblem(
    name="4 layers of 4 ops",
    layers=4,
    inflight_microbatches=2,
    last_stage=False,
    budget_bytes=1000,
    static_bytes=100,
    layer_input_bytes=1,
    windows=(window("forward", 5), window("backward", 7)),
    ops=(op(3, 10), op(4, 20, 0), op(6, 5, 1, comm=True, needed=False), op(2, 8, 2)),
)
CRITICAL = 2


def plan(*groups: tuple[int, tuple[int, ...], tuple[tuple[int, int], ...]]) -> RecomputeLayerPlan:
    return RecomputeLayerPlan(groups=tuple(LayerGroup(layers=n, stored=s, recomputed=r) for n, s, r in groups))


MIXED = plan((3, (0,), ((1, 1), (2, CRITICAL), (3, CRITICAL))), (1, (0, 1, 3), ()))
"""Three layers store op 0, recompute 1 in the backward window and 2, 3 on the critical path; one layer stores all."""


def test_time_counts_only_on_the_critical_path_for_each_layer() -> None:
    """3 layers · (6 + 2) us; what is recomputed in the window costs nothing."""
    assert judge_recompute_layer(STORY, MIXED).objective_us == 24


def test_memory_adds_up() -> None:
    """2 in flight · (4 inputs · 1 + 3·10 + 1·(10 + 20 + 8)) = 144; working set max(2·20 + 5 + 8, 0) = 53: 197 + 100."""
    assert judge_recompute_layer(replace(STORY, budget_bytes=297), MIXED).clean
    assert judge_recompute_layer(replace(STORY, budget_bytes=296), MIXED).violations == (
        "the groups need 197 bytes, but budget − static leaves 196",
    )


def test_what_is_recomputed_in_a_forward_window_waits_in_every_layer() -> None:
    """Op 1 in the forward window, op 3 stored: 2·(4 + 4·(10 + 8)) = 152, and 4·20 = 80 more: 232 + 100."""
    early = plan((4, (0, 3), ((1, 0),)))
    assert judge_recompute_layer(replace(STORY, budget_bytes=332), early).objective_us == 0
    assert not judge_recompute_layer(replace(STORY, budget_bytes=331), early).clean
    assert judge_recompute_layer(replace(STORY, last_stage=True), early).violations == (
        "groups[0] recomputes op 1 in window 0 ('forward'), a forward window of the last stage",
    )


def test_a_stall_counts_like_a_backward_window() -> None:
    """Op 1 in a stall: 152 + 2·20 = 192, also on the last stage."""
    stall = replace(STORY, windows=(window("stall", 5),), last_stage=True, budget_bytes=292)
    assert judge_recompute_layer(stall, plan((4, (0, 3), ((1, 0),)))).objective_us == 0
    assert not judge_recompute_layer(replace(stall, budget_bytes=291), plan((4, (0, 3), ((1, 0),)))).clean


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        ([(3, (0, 1, 3), ())], "groups hold 3 layers, but the problem has 4"),
        ([(5, (0, 1, 3), ()), (-1, (0, 1, 3), ())], "groups[1] has -1 layers, but at least 1 is needed"),
        ([(4, (0, 1), ())], "groups[0] neither stores nor recomputes op 3 ('op'), which a backward op reads"),
        ([(4, (0, 1, 3, 3), ())], "groups[0] names op 3 twice, but an op is stored or recomputed at most once"),
        ([(4, (0, 1, 3), ((1, 2),))], "groups[0] names op 1 twice, but an op is stored or recomputed at most once"),
        ([(4, (0, 1, 4), ())], "groups[0] names op 4, but ops are 0…3"),
        ([(4, (0, 1), ((3, 3),))], "groups[0] recomputes op 3 in window 3, but windows are 0…2 (critical path)"),
        (
            [(4, (0, 1), ((3, CRITICAL),))],
            "groups[0] recomputes op 3 in window 2, but its input 2 is neither stored nor recomputed",
        ),
        (
            [(4, (0, 1), ((3, 1), (2, CRITICAL)))],
            "groups[0] recomputes op 3 in window 1, but its input 2 only in window 2",
        ),
        ([(4, (0, 1), ((2, 1), (3, 1)))], "groups[0] recomputes op 2, a communication, in window 1 ('backward')"),
        ([(4, (3,), ((0, 0), (1, 0)))], "groups[0] recomputes for 7 us in window 0 ('forward'), which has 5 us"),
    ],
)
def test_each_rule_broken_once_is_named(groups: list[Any], words: str) -> None:
    verdict = judge_recompute_layer(STORY, plan(*groups))
    assert words in verdict.violations
    assert verdict.objective_us is None


def test_an_input_recomputed_in_the_same_window_is_there_in_time() -> None:
    """Ops 0 and 1 (3 + 4 us) just fill the backward window."""
    assert judge_recompute_layer(STORY, plan((4, (3,), ((0, 1), (1, 1))))).objective_us == 0


@given(st.data())
def test_splitting_a_group_changes_nothing(data: st.DataObject) -> None:
    """n layers of one policy are the same as two groups of it: the memory and time formulas add up over layers."""
    problem = data.draw(recompute_layer_problems())
    whole = data.draw(recompute_layer_plans(problem))
    group = whole.groups[0]
    n = data.draw(st.integers(1, max(1, group.layers - 1)))
    parts = [replace(group, layers=n), replace(group, layers=group.layers - n)]
    split = RecomputeLayerPlan(groups=(*(part for part in parts if part.layers), *whole.groups[1:]))
    one, two = judge_recompute_layer(problem, whole), judge_recompute_layer(problem, split)
    assert (one.clean, one.objective_us) == (two.clean, two.objective_us)
