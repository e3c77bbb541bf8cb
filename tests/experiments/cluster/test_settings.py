"""Settings of a cluster experiment: every fault is one sentence that names the remedy."""

import pytest

from experiments.cluster.compare import require_answerable
from experiments.cluster.lives import make_setting
from experiments.cluster.policies import make_policies, policy_of
from experiments.cluster.settings import Grid, make_grid, read_cluster_settings, read_grid_text
from solvers.ir import InvalidInput
from solvers.replan import ExactReplan, Recycle
from solvers.replan.cluster import Chameleon, Checkpoints, OobleckPolicy, RecyclePolicy, SimulatedRerouting


def test_the_papers_simulation() -> None:
    setting = make_setting(read_cluster_settings(["experiment=ft_32"]).settings)
    assert (setting.depth, setting.data_parallel, setting.problem.microbatches) == (4, 8, 64)
    assert setting.problem.nodes == 32 and setting.problem.layers == 32
    assert setting.duration_us == 9 * 3600 * 10**6 and setting.failures_per_device_hour == 0.1
    assert setting.restart_us == 8_200_000


def test_a_month_of_ten_thousand_devices_returns_them() -> None:
    setting = make_setting(read_cluster_settings(["experiment=ft_month"]).settings)
    assert setting.problem.nodes == 10_000 and setting.problem.layers == 80
    assert setting.repair is not None and setting.repair.mean_s == 24 * 3600


def test_policies_are_built_from_their_settings() -> None:
    words = ["experiment=ft_32", "policies.oobleck.batches=equal", "policies.oobleck.restart_s=60"]
    words += ["policies.chameleon.planner=exact", "policies.chameleon.rerouting=simulated", "~policies.symmetric"]
    words += ["policies.recycle.lost_stage=stop", "policies.always-reroute.policy=recycle"]
    found = make_policies(read_cluster_settings(words).settings.policies)
    chameleon, oobleck, recycle = found["chameleon"], found["oobleck"], found["recycle"]
    assert isinstance(chameleon, Chameleon)
    assert chameleon.planner == ExactReplan() and chameleon.rerouting == SimulatedRerouting()
    assert isinstance(oobleck, OobleckPolicy)
    assert oobleck.solver.batches == "equal" and oobleck.restart_us == 60_000_000
    assert oobleck.checkpoints == Checkpoints(interval_us=0, restore_us=300_000_000)
    assert isinstance(recycle, RecyclePolicy) and recycle.solver == Recycle(lost_stage="stop")
    assert found["always-reroute"] == RecyclePolicy(checkpoints=oobleck.checkpoints)
    assert "symmetric" not in found


def test_an_entrys_policy_is_the_same() -> None:
    raw = {"policy": "oobleck", "batches": "equal", "restart_s": 30}
    assert policy_of("oobleck", raw) == OobleckPolicy(
        solver=type(OobleckPolicy().solver)(batches="equal"), restart_us=30_000_000
    )
    with pytest.raises(InvalidInput, match="there is no setting of mine 'restart': did you mean 'restart_s'"):
        policy_of("mine", {"restart": 3})
    with pytest.raises(InvalidInput, match="there is no policy of mine 'ooblek': did you mean 'oobleck'"):
        policy_of("mine", {"policy": "ooblek"})


def test_grids() -> None:
    assert read_grid_text("128x16x80") == Grid(128, 16, 80)
    assert read_grid_text("8x4") == Grid(8, 4, None)
    assert read_grid_text("8x4").nodes == 32


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("grid=8*4", "grid is '8*4': write PIPELINESxDEPTH or PIPELINESxDEPTHxLAYERS, as in 8x4 or 128x16x80"),
        ("shape=llama-2-7", "there is no shape 'llama-2-7': did you mean 'llama-2-7b'?"),
        ("cluster=ascend910b", "there is no hardware 'ascend910b': did you mean 'ascend-910b'?"),
        ("lost=32", "lost is 32, but the grid has 32 nodes: leave at least one alive"),
        ("seeds=0", "nothing is asked: give seeds=N to train through failures, or lost=N to plan after them"),
        ("trace=nowhere.csv", "there is no trace nowhere.csv: give the path of a CSV file, or leave trace out"),
        ("policies={}", None),
        ("hours=0", "hours is 0.0, outside 0.001…100000: choose a value inside"),
        ("rate_per_h=nan", "rate_per_h is nan, outside 1e-09…1000: choose a value inside"),
        ("paper.oobleck=nan", "paper.oobleck is nan, outside 0.001…1000: choose a value inside"),
        ("name=a/b", "name is 'a/b', which names no folder: use letters, digits, - and _"),
        ("kind=training", "kind is 'training', but this experiment is of the kind 'cluster': leave it out"),
        ("sheds=3", "there is no setting 'sheds': did you mean 'seeds'?"),
        ("policies.recycle.batches=equal", "policies.recycle.batches means nothing to recycle: leave it out"),
        (
            "policies.chameleon.rerouting=filed",
            "there is no rerouting of policies.chameleon 'filed': did you mean 'filled'?",
        ),
        (
            "policies.symmetric.checkpoint_s=null",
            "policies.symmetric goes back to checkpoints, but saves none: give checkpoint_s",
        ),
        (
            "policies.chameleon.checkpoint_s=null",
            "policies.chameleon.restore_s is of checkpoints, but without checkpoint_s none is saved: give "
            "checkpoint_s, or set restore_s to null",
        ),
        ("policies.oobleck.restart_s=-1", "restart_s is -1.0, outside 0…1e+06: choose a value inside"),
        ("grid=8x4x3", "depth is 4, above 3 (layers, max_depth): lower it"),
        ("seeds=1,2", "'seeds=1,2' holds several values: add -m to sweep over them"),
    ],
)
def test_bad_input_is_one_sentence(override: str, sentence: str | None) -> None:
    if sentence is None:  # an empty mapping is merged, and changes nothing
        require_answerable(read_cluster_settings(["experiment=ft_32", override]).settings)
        return
    with pytest.raises(InvalidInput) as fault:
        require_answerable(read_cluster_settings(["experiment=ft_32", override]).settings)
    assert sentence in str(fault.value) and "\n" not in str(fault.value)


def test_without_policies_there_is_nothing_to_live() -> None:
    names = ["chameleon", "always-replan", "always-reroute", "oobleck", "recycle", "symmetric", "bayplan", "checkpoint"]
    settings = read_cluster_settings(["experiment=ft_32", *(f"~policies.{name}" for name in names)]).settings
    assert make_grid(settings).nodes == 32
    with pytest.raises(InvalidInput, match="policies is empty: leave at least one of them in"):
        require_answerable(settings)
