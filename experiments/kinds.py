"""`bayplan compare` by kind of experiment, told before anything heavy is imported: training, or a pipeline."""

import re
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path

EXPERIMENTS = Path(__file__).resolve().parent.parent / "conf" / "experiment"
TRAINING, PIPELINE = "training", "pipeline"
MODULES = {TRAINING: "experiments.compare", PIPELINE: "experiments.lynx.compare"}
"""What runs the experiments whose file says `kind: NAME`; those that say nothing train a model."""


def main(argv: Sequence[str]) -> int:
    """Hand the arguments to the experiment's own `main(argv) -> exit code`."""
    run: Callable[[Sequence[str]], int] = import_module(MODULES[kind_of(argv)]).main
    return run(argv)


def kind_of(argv: Sequence[str]) -> str:
    """The kind of the experiment that these overrides choose; unknown ones are the training command's to refuse."""
    chosen = [word.partition("=")[2] for word in argv if word.lstrip("+").startswith("experiment=")]
    path = EXPERIMENTS / f"{chosen[-1]}.yaml" if chosen and re.fullmatch(r"[\w.-]+", chosen[-1]) else None
    if path is None or not path.is_file():
        return TRAINING
    said = re.search(r"^kind: *(\w+) *$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return said[1] if said and said[1] in MODULES else TRAINING
