"""Commands by kind of experiment, told before anything heavy is imported: training, a pipeline, a cluster, sessions."""

import re
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path

from solvers.ir.errors import InvalidInput

EXPERIMENTS = Path(__file__).resolve().parent.parent / "conf" / "experiment"
TRAINING, PIPELINE, CLUSTER, STABILITY = "training", "pipeline", "cluster", "stability"
MODULES = {
    TRAINING: "experiments.compare",
    PIPELINE: "experiments.lynx.compare",
    CLUSTER: "experiments.chameleon.compare",
    STABILITY: "experiments.stability.train",
}
"""What runs the experiments whose file says `kind: NAME`; those that say nothing train a model."""


def main(argv: Sequence[str]) -> int:
    """`bayplan compare`: hand the arguments to the experiment's own `main(argv) -> exit code`."""
    kind = kind_of(argv)
    if kind == STABILITY:
        raise InvalidInput("this experiment trains under sessions, which are no plans: use bayplan train")
    return run_kind(kind, argv)


def run_kind(kind: str, argv: Sequence[str]) -> int:
    """Hand the arguments to the `main(argv) -> exit code` of a kind."""
    run: Callable[[Sequence[str]], int] = import_module(MODULES[kind]).main
    return run(argv)


def kind_of(argv: Sequence[str]) -> str:
    """The kind of the experiment that these overrides choose; unknown ones are the training command's to refuse."""
    chosen = [word.partition("=")[2] for word in argv if word.lstrip("+").startswith("experiment=")]
    path = EXPERIMENTS / f"{chosen[-1]}.yaml" if chosen and re.fullmatch(r"[\w.-]+", chosen[-1]) else None
    if path is None or not path.is_file():
        return TRAINING
    said = re.search(r"^kind: *(\w+) *$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return said[1] if said and said[1] in MODULES else TRAINING
