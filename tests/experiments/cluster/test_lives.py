"""What a cluster's lives come to, told on runs that are written down here."""

import numpy as np
import pytest

from experiments.cluster.lives import Lives, curves_of, figures_of, live, make_setting
from experiments.cluster.settings import read_cluster_settings
from solvers.replan.cluster import Alive, Chameleon, RunResult, Span

SETTING = make_setting(read_cluster_settings(["experiment=ft_32", "hours=1"]).settings)
HOUR_US = 3600 * 10**6


def a_run(policy: str, step_us: int, seed: int = 0) -> RunResult:
    """Half an hour of training on 32 nodes, a quarter in transition, a quarter of training on 16."""
    half, quarter = HOUR_US // 2, HOUR_US // 4
    steps = half // step_us + quarter // (2 * step_us)
    return RunResult(
        policy=policy, seed=seed, duration_us=HOUR_US, steps=steps, microbatches=64 * steps, training_us=half + quarter,
        lost_us=0, transition_us=quarter, stopped_us=0, saving_us=0, unfinished_us=0, failures=16, repairs=0,
        decisions={"replan": 1},
        spans=(
            Span(0, half, "training", step_us),
            Span(half, half + quarter, "transition"),
            Span(half + quarter, HOUR_US, "training", 2 * step_us),
        ),
        nodes=(Alive(0, 32, 32), Alive(half, 16, 12)),
        decision_s=(0.25,),
    )  # fmt: skip


def test_curves_integrate_what_was_trained() -> None:
    lives = Lives(SETTING, {"one": (a_run("one", 4_000_000),)})
    curves = curves_of(lives, "one", 4)
    assert curves.hours.tolist() == [0.125, 0.375, 0.625, 0.875]
    assert curves.alive[0].tolist() == [32, 32, 16, 16]
    assert curves.staged[0].tolist() == [32, 32, 12, 12]
    assert curves.samples_per_s[0].tolist() == pytest.approx([16.0, 16.0, 0.0, 8.0])
    mean = float(curves.mean("samples_per_s").mean())
    assert mean == pytest.approx(lives.throughputs("one")[0], rel=1e-3)


def test_bands_are_over_lives() -> None:
    runs = tuple(a_run("one", step_us, seed) for seed, step_us in enumerate((4_000_000, 8_000_000)))
    curves = curves_of(Lives(SETTING, {"one": runs}), "one", 4)
    assert curves.band("samples_per_s", 0.5).tolist() == pytest.approx([12.0, 12.0, 0.0, 6.0])
    assert np.array_equal(curves.band("alive", 0.0), curves.band("alive", 1.0))


def test_gains_are_paired_life_by_life() -> None:
    lives = Lives(
        SETTING,
        {
            "fast": (a_run("fast", 1_000_000), a_run("fast", 4_000_000, 1)),
            "slow": (a_run("slow", 2_000_000), a_run("slow", 4_000_000, 1)),
        },
    )
    figures = figures_of(lives, "slow")
    assert figures["first_over"]["p50"] == pytest.approx(1.5, rel=1e-3)
    assert figures["first_over"]["count"] == 2
    assert lives.over_on_average("slow") == pytest.approx(5 / 3, rel=1e-3)
    assert figures["shares"]["transition"] == 0.25 and figures["shares"]["training"] == 0.75
    assert figures["decisions"] == {"replan": 1} and figures["decision_s"] == 0.25
    assert figures_of(lives, "fast")["first_over"]["mean"] == 1.0


def test_the_same_seeds_give_the_same_lives() -> None:
    policies = {"chameleon": Chameleon()}
    one, other = (live(SETTING, policies, range(2)) for _ in range(2))
    assert one.runs == other.runs
    assert one.runs["chameleon"][0] != one.runs["chameleon"][1]
