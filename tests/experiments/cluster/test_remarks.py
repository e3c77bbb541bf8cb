"""The mean time between failures, and who is told that going back takes longer."""

from collections.abc import Callable
from itertools import pairwise

import pytest

from experiments.cluster.lives import make_setting
from experiments.cluster.remarks import between_failures_s, remarks
from experiments.cluster.settings import ClusterSettings, read_cluster_settings
from experiments.cluster.tables import remark_lines
from solvers.ir import Row
from solvers.replan.cluster import parse_trace, random_failures


@pytest.fixture(scope="module")
def asked() -> Callable[..., ClusterSettings]:
    def one(*words: str) -> ClusterSettings:
        return read_cluster_settings(["experiment=ft_32", *words]).settings

    return one


def test_it_is_what_random_lives_show(asked: Callable[..., ClusterSettings]) -> None:
    """Beside the gaps of a long life that was drawn, repairs being quick."""
    settings = asked("hours=2000", "repair_h=0.01")
    setting = make_setting(settings)
    failed = [event.at_us for event in random_failures(setting, 1).events if event.kind == "failed"]
    gaps = [after - before for before, after in pairwise(failed)]
    mean = between_failures_s(settings, setting, None)
    assert mean == pytest.approx(3600 / 3.2) == pytest.approx(sum(gaps) / len(gaps) / 1e6, rel=0.05)


def test_a_trace_has_its_own(asked: Callable[..., ClusterSettings]) -> None:
    settings = asked("hours=1")
    setting = make_setting(settings)
    full = parse_trace(["600000,remove,1", "600000,remove,2", "1200000,remove,3", "9000000,remove,4"], 32)
    assert between_failures_s(settings, setting, full) == 1800.0  # two moments in an hour
    empty = parse_trace(["1800000,add,a", "1900000,add,b", "2000000,remove,a"], 32, "empty")
    assert between_failures_s(settings, setting, empty) == 1800.0  # one in the half hour in which there was a node
    assert between_failures_s(settings, setting, parse_trace(["9000000,remove,4"], 32)) is None


def test_who_is_told(asked: Callable[..., ClusterSettings]) -> None:
    words = ("rate_per_h=1", "policies.oobleck.restart_s=200", "policies.recycle.restore_s=100")
    settings = asked(*words)
    told = remarks(settings, make_setting(settings), None)
    assert set(told) == set(settings.policies) - {"recycle"}
    assert told["oobleck"].startswith("a transition takes 200 s, longer than the 112 s between failures")
    assert told["symmetric"].startswith("going back to a checkpoint, at every failure, takes 300 s, longer")
    assert remarks(asked(), make_setting(asked()), None) == {}


def test_a_line_for_each_remark() -> None:
    def row(policy: str, reason: str | None) -> Row:
        asked = {"what": "lives", "policy": policy}
        return Row(
            experiment="e", asked=asked, outcome="ok", figures={}, provenance="", commit=None, seed=0, reason=reason
        )

    rows = [row("a", "slow"), row("b", None), row("c", "slow"), row("d", "dear")]
    assert remark_lines(rows) == ["a, c: slow", "d: dear"]
