"""What is to be said of a cluster experiment beside its figures: going back to a checkpoint outlasts the quiet."""

from collections.abc import Mapping

from experiments.cluster.policies import NEEDS_CHECKPOINTS, PolicyConf
from experiments.cluster.settings import ClusterSettings
from solvers.replan.cluster import ClusterSetting, Failures

HOUR_S = 3600.0
MICRO = 10**6


def remarks(settings: ClusterSettings, setting: ClusterSetting, failures: Failures | None) -> Mapping[str, str]:
    """A sentence for each policy whose restore, or restart, takes longer than the mean time between failures."""
    interval_s = between_failures_s(settings, setting, failures)
    if interval_s is None:
        return {}
    found = {name: _remark(conf, settings, interval_s) for name, conf in settings.policies.items()}
    return {name: sentence for name, sentence in found.items() if sentence is not None}


def between_failures_s(settings: ClusterSettings, setting: ClusterSetting, failures: Failures | None) -> float | None:
    """The mean seconds between failures: of the trace within the run, or of the whole cluster at its rate.

    Nodes that fail in one moment count once; None where nothing fails.
    """
    if failures is None:
        rate = setting.failures_per_node_hour * setting.problem.nodes
        return HOUR_S / rate if rate else None
    end_us = setting.duration_us
    moments = {event.at_us for event in failures.events if event.kind == "failed" and event.at_us < end_us}
    begins_us = min(failures.events[0].at_us, end_us) if failures.absent else 0
    return (end_us - begins_us) / MICRO / len(moments) if moments else None


def _remark(conf: PolicyConf, settings: ClusterSettings, interval_s: float) -> str | None:
    always = conf.policy in NEEDS_CHECKPOINTS
    restart_s = settings.restart_s if conf.restart_s is None else conf.restart_s
    restore_s = (conf.restore_s or 0.0) if conf.checkpoint_s is not None else restart_s
    between = f"longer than the {interval_s:.3g} s between failures on average, so that most are cut short by the next"
    if not always and restart_s > interval_s:
        return f"a transition takes {restart_s:g} s, {between}"
    if restore_s > interval_s:
        when = "at every failure" if always else "where a state has lost all its copies"
        return f"going back to a checkpoint, {when}, takes {restore_s:g} s, {between}"
    return None
