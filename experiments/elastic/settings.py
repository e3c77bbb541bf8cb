"""The settings of an experiment whose processes fail: types, ranges, and the sentence for a value outside."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple, cast

from hydra.core.config_store import ConfigStore
from omegaconf import OmegaConf

from experiments.compose import Root, read_root
from experiments.config import names_a_folder, within
from experiments.kinds import ELASTIC
from solvers.ir import InvalidInput
from solvers.ir.names import unknown
from solvers.planner import solver_entry, solver_names


class Policy(Enum):
    """What may be decided after a failure: what the solver prefers, only new plans, or rerouting where possible."""

    auto = "auto"
    dynamic = "dynamic"
    reroute = "reroute"


@dataclass
class ElasticSettings:
    """One experiment: `steps` training steps of `job` on `nodes` processes, of which `kills` end some.

    `check` compares losses and states with one process that does the same without failures. `checkpoint_dir` takes
    checkpoints, every `checkpoint_every` steps and after the last; `resume` goes on with the last one in there;
    `save_on_exit`: one is made, too, where the command is interrupted or killed.
    """

    kind: str = ELASTIC
    name: str = "elastic"
    job: str = "experiments.elastic.llama:job"
    nodes: int = 8
    pipeline: int = 2
    steps: int = 12
    solver: str = "exact-replan"
    policy: Policy = Policy.auto
    kills: str = ""
    canonical: bool = True
    timeout_s: float = 20.0
    hang_s: float = 5.0
    port: int = 0
    checkpoint_dir: str | None = None
    checkpoint_every: int = 0
    keep_checkpoints: int = 3
    resume: bool = False
    save_on_exit: bool = False
    check: bool = True
    plots: bool = True
    run_dir: str | None = None
    force: bool = False

    def __post_init__(self) -> None:
        """Refuse numbers that no run has."""
        within("nodes", self.nodes, least=1, most=64)
        within("pipeline", self.pipeline, least=1, most=64)
        within("steps", self.steps, least=1, most=100_000)
        within("timeout_s", self.timeout_s, least=0.5, most=3600)
        within("hang_s", self.hang_s, least=0.5, most=3600)
        within("checkpoint_every", self.checkpoint_every, least=0, most=100_000)
        within("keep_checkpoints", self.keep_checkpoints, least=1, most=1000)
        within("port", self.port, least=0, most=65535)
        if self.solver not in (known := solver_names("replan")):
            if self.solver not in solver_names():
                raise unknown("solver", self.solver, known)
            raise InvalidInput(
                f"{self.solver} solves {solver_entry(self.solver).kind} problems, but failures make replan ones: "
                f"choose of {', '.join(known)}"
            )
        names_a_folder(self.name)
        if self.kind != ELASTIC:
            raise InvalidInput(f"kind is {self.kind!r}, but this experiment is of the kind {ELASTIC!r}: leave it out")


class ComposedElastic(NamedTuple):
    """Settings, and the same as YAML text."""

    settings: ElasticSettings
    yaml: str


def register() -> None:
    """Make the types known to Hydra."""
    ConfigStore.instance().store(group="schema", name="elastic", node=ElasticSettings)


ROOT = Root("elastic", register)


def read_elastic_settings(overrides: Sequence[str]) -> ComposedElastic:
    """The settings that the overrides ask for; raises `InvalidInput` with one sentence for any fault.

    `solver` is a name here and a group of files in other kinds of experiments; where this process has made those known
    to Hydra, it would look for a file: so Hydra is not asked.
    """
    named = [one for one in overrides if one.startswith("solver=")]
    composed, yaml = read_root(ROOT, [one for one in overrides if one not in named])
    settings = cast("ElasticSettings", composed)
    if named:
        settings = replace(settings, solver=named[-1].removeprefix("solver="))
        yaml = OmegaConf.to_yaml(OmegaConf.structured(settings))
    return ComposedElastic(settings, yaml)
