"""The policies of a cluster experiment: each one's settings, and the policy that they make."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any

from experiments.config import within
from solvers.ir import InvalidInput
from solvers.ir.names import unknown
from solvers.replan import Algorithm1, ExactReplan, Oobleck, Recycle, Symmetric
from solvers.replan.cluster import (
    AlwaysReplan,
    AlwaysReroute,
    Chameleon,
    CheckpointOnly,
    Checkpoints,
    OobleckPolicy,
    PaperRerouting,
    Policy,
    RecyclePolicy,
    ReroutingLaw,
    SimulatedRerouting,
    SymmetricPolicy,
)

MICRO = 10**6


class PolicyKind(Enum):
    """What a cluster does at a failure (`solvers/replan/cluster`)."""

    chameleon = "chameleon"
    always_replan = "always_replan"
    always_reroute = "always_reroute"
    oobleck = "oobleck"
    recycle = "recycle"
    symmetric = "symmetric"
    checkpoint = "checkpoint"


@dataclass
class PolicyConf:
    """One policy. None is the policy's own default; a setting that it does not know is refused.

    `planner`: exact or algorithm1. `rerouting`: formula (F7), simulated, or filled (ReCycle's schedule). `restart_s`:
    of a transition, instead of the experiment's. `batches`: how microbatches are shared. `lost_stage`: what ReCycle
    does when a stage has lost all its peers. A checkpoint is saved every `checkpoint_s` of training (0: every step) in
    `save_s`, and loaded in `restore_s`.
    """

    policy: PolicyKind = PolicyKind.chameleon
    planner: str | None = None
    rerouting: str | None = None
    restart_s: float | None = None
    batches: str | None = None
    faults: int | None = None
    least_depth: int | None = None
    lost_stage: str | None = None
    rejoin: str | None = None
    checkpoint_s: float | None = None
    save_s: float | None = None
    restore_s: float | None = None

    def __post_init__(self) -> None:
        """Refuse times and counts that no policy has."""
        for name in ("restart_s", "checkpoint_s", "save_s", "restore_s"):
            within(name, getattr(self, name), least=0, most=1e6)
        within("faults", self.faults, least=0, most=1000)
        within("least_depth", self.least_depth, least=1, most=4096)


PLANNERS: Mapping[str, Callable[[], Any]] = {"exact": ExactReplan, "algorithm1": Algorithm1}
LAWS: Mapping[str, Callable[[], ReroutingLaw]] = {
    "formula": PaperRerouting,
    "simulated": SimulatedRerouting,
    "filled": Recycle,
}
CHOICES = {
    "planner": tuple(PLANNERS),
    "rerouting": tuple(LAWS),
    "lost_stage": ("stop", "checkpoint", "replan"),
    "rejoin": ("at-once", "next-decision"),
}
"""Words that a setting may hold."""
ALWAYS = ("rejoin", "checkpoint_s", "save_s", "restore_s")
KNOWN: Mapping[PolicyKind, tuple[str, ...]] = {
    PolicyKind.chameleon: ("planner", "rerouting", "restart_s"),
    PolicyKind.always_replan: ("planner", "restart_s"),
    PolicyKind.always_reroute: ("planner", "rerouting", "restart_s"),
    PolicyKind.oobleck: ("restart_s", "batches", "faults", "least_depth"),
    PolicyKind.recycle: ("rerouting", "restart_s", "lost_stage"),
    PolicyKind.symmetric: ("batches",),
    PolicyKind.checkpoint: (),
}
"""Settings that a policy knows, beside those that all know."""
NEEDS_CHECKPOINTS = (PolicyKind.symmetric, PolicyKind.checkpoint)


def make_policies(confs: Mapping[str, PolicyConf]) -> dict[str, Policy]:
    """The policies by name; raises `InvalidInput` for a setting that a policy does not know or cannot hold."""
    return {name: make_policy(name, conf) for name, conf in confs.items()}


def policy_of(name: str, raw: Mapping[str, Any]) -> Policy:
    """The policy that an entry's parameters describe; raises `InvalidInput`."""
    known = [entry.name for entry in fields(PolicyConf)]
    for key in raw:
        if key not in known:
            raise unknown(f"setting of {name}", key, known)
    word = str(raw.get("policy", PolicyKind.chameleon.value))
    if word not in PolicyKind.__members__:
        raise unknown(f"policy of {name}", word, PolicyKind.__members__)
    return make_policy(name, PolicyConf(**{**raw, "policy": PolicyKind[word]}))


def make_policy(name: str, conf: PolicyConf) -> Policy:
    """The policy of these settings; raises `InvalidInput` as `make_policies`."""
    given = {entry.name for entry in fields(conf) if entry.name != "policy" and getattr(conf, entry.name) is not None}
    for key in sorted(given - {*KNOWN[conf.policy], *ALWAYS}):
        raise InvalidInput(f"policies.{name}.{key} means nothing to {conf.policy.value}: leave it out")
    for key, words in CHOICES.items():
        if key in given and getattr(conf, key) not in words:
            raise unknown(f"{key} of policies.{name}", getattr(conf, key), words)
    if conf.policy in NEEDS_CHECKPOINTS and conf.checkpoint_s is None:
        raise InvalidInput(f"policies.{name} goes back to checkpoints, but saves none: give checkpoint_s")
    idle = sorted(given & {"save_s", "restore_s"}) if conf.checkpoint_s is None else []
    if idle:
        raise InvalidInput(
            f"policies.{name}.{idle[0]} is of checkpoints, but without checkpoint_s none is saved: give checkpoint_s, "
            f"or set {' and '.join(idle)} to null"
        )
    return _MAKERS[conf.policy](conf, _shared(conf))


def _shared(conf: PolicyConf) -> dict[str, Any]:
    """What all policies know: when a repaired node rejoins, and checkpoints."""
    found: dict[str, Any] = {} if conf.rejoin is None else {"rejoin": conf.rejoin}
    if conf.checkpoint_s is not None:
        times = [round((value or 0) * MICRO) for value in (conf.checkpoint_s, conf.save_s, conf.restore_s)]
        found["checkpoints"] = Checkpoints(interval_us=times[0], save_us=times[1], restore_us=times[2])
    return found


def _restart(conf: PolicyConf) -> dict[str, Any]:
    return {} if conf.restart_s is None else {"restart_us": round(conf.restart_s * MICRO)}


def _words(conf: PolicyConf, *names: str) -> dict[str, Any]:
    """These settings, where they are given."""
    return {name: getattr(conf, name) for name in names if getattr(conf, name) is not None}


def _planner(conf: PolicyConf) -> dict[str, Any]:
    return {} if conf.planner is None else {"planner": PLANNERS[conf.planner]()}


def _law(conf: PolicyConf) -> dict[str, Any]:
    return {} if conf.rerouting is None else {"rerouting": LAWS[conf.rerouting]()}


_MAKERS: Mapping[PolicyKind, Callable[[PolicyConf, dict[str, Any]], Policy]] = {
    PolicyKind.chameleon: lambda conf, shared: Chameleon(**_planner(conf), **_law(conf), **_restart(conf), **shared),
    PolicyKind.always_replan: lambda conf, shared: AlwaysReplan(**_planner(conf), **_restart(conf), **shared),
    PolicyKind.always_reroute: lambda conf, shared: AlwaysReroute(
        **_planner(conf), **_law(conf), **_restart(conf), **shared
    ),
    PolicyKind.oobleck: lambda conf, shared: OobleckPolicy(
        solver=Oobleck(**_words(conf, "faults", "batches", "least_depth")), **_restart(conf), **shared
    ),
    PolicyKind.recycle: lambda conf, shared: RecyclePolicy(
        solver=Recycle(**_words(conf, "lost_stage")), **_law(conf), **_restart(conf), **shared
    ),
    PolicyKind.symmetric: lambda conf, shared: SymmetricPolicy(solver=Symmetric(**_words(conf, "batches")), **shared),
    PolicyKind.checkpoint: lambda conf, shared: CheckpointOnly(**shared),
}
