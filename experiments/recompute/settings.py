"""The settings of an experiment that executes recomputation plans: types, ranges, and the sentence for a fault."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, cast

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING

from experiments import config
from experiments.compose import Root, read_root
from experiments.config import HardwareConf, ModelConf, names_a_folder, within
from experiments.kinds import RECOMPUTE
from experiments.models import GptShape
from experiments.ranks.settings import Carrier, plain_gpt
from solvers.ir import InvalidInput
from solvers.planner import build_solver, solver_entry

EVERYTHING, NOTHING = "everything", "nothing"
"""Policies without a solver: a tape that stores all, and one that stores collectives' results only."""
PRECISIONS = ("float32", "bfloat16")
LAYER = "recompute-layer"


@dataclass
class RecomputeSettings:
    """One experiment: tensor parallel training of a GPT on real text under recomputation policies, and without any.

    `policies`: a name, and the solver of kind `recompute-layer` with its parameters, as in `heu groups=2`; or
    `everything`, `nothing`. `budget_share` is of the peak of training that keeps everything. A step is `microbatches`
    batches, `inflight` of which are ahead of their backward passes. `noise` and `wrong` (0: not) repeat
    `disturbed_steps` steps with each kernel's time varied, and with plans made from wrong times, `wrong_draws` of them.
    """

    kind: str = RECOMPUTE
    name: str = "lynx_tp2"
    ranks: int = 2
    steps: int = 20
    microbatches: int = 1
    inflight: int = 1
    precision: str = "float32"
    budget_share: float = 0.75
    policies: dict[str, str] = field(default_factory=dict)
    carrier: Carrier = Carrier.threads
    noise: float = 0.1
    wrong: float = 0.5
    wrong_draws: int = 5
    disturbed_steps: int = 4
    hardware: HardwareConf = MISSING
    model: ModelConf = MISSING
    run_dir: str | None = None
    force: bool = False
    plots: bool = True

    def __post_init__(self) -> None:
        """Refuse numbers that no run has."""
        within("ranks", self.ranks, least=1, most=64)
        within("steps", self.steps, least=1, most=10_000)
        within("microbatches", self.microbatches, least=1, most=1024)
        within("inflight", self.inflight, least=1, most=self.microbatches)
        within("budget_share", self.budget_share, least=0.0, most=2.0)
        within("noise", self.noise, least=0, most=0.5)
        within("wrong", self.wrong, least=0, most=4)
        within("wrong_draws", self.wrong_draws, least=1, most=1000)
        within("disturbed_steps", self.disturbed_steps, least=1, most=10_000)
        if self.precision not in PRECISIONS:
            raise InvalidInput(f"precision is {self.precision!r}: choose one of {', '.join(PRECISIONS)}")
        names_a_folder(self.name)
        if self.kind != RECOMPUTE:
            raise InvalidInput(f"kind is {self.kind!r}, but this experiment is of the kind {RECOMPUTE!r}: leave it out")


class ComposedRecompute(NamedTuple):
    """Settings, the model's shape, and the settings as YAML text."""

    settings: RecomputeSettings
    shape: GptShape
    yaml: str


def register() -> None:
    """Make the types known to Hydra, with those of the groups that this experiment shares with others."""
    config.register()
    ConfigStore.instance().store(group="schema", name="recompute", node=RecomputeSettings)


ROOT = Root("recompute", register)


def read_recompute_settings(overrides: Sequence[str]) -> ComposedRecompute:
    """The settings that the overrides ask for; raises `InvalidInput` with one sentence for any fault."""
    settings, yaml = read_root(ROOT, overrides)
    found = cast("RecomputeSettings", settings)
    shape = plain_gpt(found.model)
    if shape.heads % found.ranks:
        raise InvalidInput(f"model.heads is {shape.heads}, no multiple of the {found.ranks} ranks: choose a multiple")
    for name, spec in found.policies.items():
        require_policy(name, spec)
    return ComposedRecompute(found, shape, yaml)


def require_policy(name: str, spec: str) -> None:
    """Refuse a policy that is none."""
    if spec in (EVERYTHING, NOTHING):
        return
    solver, parameters = parse_policy(spec)
    if solver_entry(solver).kind != LAYER:
        raise InvalidInput(f"policies.{name} is {spec!r}, whose solver is not of kind {LAYER!r}: choose one that is")
    build_solver(solver, parameters)


def parse_policy(spec: str) -> tuple[str, dict[str, object]]:
    """A solver's name and parameters, from text such as `heu groups=2`; raises `InvalidInput` for other text."""
    name, *words = spec.split()
    parameters: dict[str, object] = {}
    for word in words:
        key, found, value = word.partition("=")
        if not found or not re.fullmatch(r"-?\d+", value):
            raise InvalidInput(f"policy {spec!r} has the parameter {word!r}: write NAME=WHOLE-NUMBER")
        parameters[key] = int(value)
    return name, parameters
