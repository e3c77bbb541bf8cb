"""Kinds of experiments, told before anything heavy is imported: training, pipelines, clusters, sessions, ranks."""

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from solvers.ir.errors import InvalidInput
from solvers.kinds import load

if TYPE_CHECKING:
    from experiments.compose import Root
    from experiments.study import Study
    from experiments.tables import Table
    from solvers.ir.report import Row

EXPERIMENTS = Path(__file__).resolve().parent.parent / "conf" / "experiment"
TRAINING, PIPELINE, CLUSTER, STABILITY, RANKS = "training", "pipeline", "cluster", "stability", "ranks"
RECOMPUTE, ELASTIC, LAYOUT = "recompute", "elastic", "layout"


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """What runs the experiments of one kind, as import paths `module:attribute`.

    `tables`: a function of its rows that tells what they say as tables.
    `study`: its `experiments.study.Study` for `bayplan compare`; None: `no_study` says why not, and
    `root` is where its settings begin (`experiments.compose.Root`). `trainer`: its own
    `main(argv) -> exit code` of `bayplan train`; `no_trainer`: why nothing trains it, where that is so. `quiet`: what
    PyTorch's sockets say of processes that end is told in sentences of one's own.
    """

    tables: str
    study: str | None = None
    root: str | None = None
    no_study: str = ""
    trainer: str | None = None
    no_trainer: str | None = None
    quiet: bool = False


KINDS: dict[str, Experiment] = {
    TRAINING: Experiment(tables="experiments.tables:policy_tables", study="experiments.training.compare:STUDY"),
    PIPELINE: Experiment(
        tables="experiments.pipeline.tables:tables_of_rows",
        study="experiments.pipeline.compare:STUDY",
        no_trainer="this experiment plans a pipeline, which nothing trains: use bayplan compare, or experiment=demo",
    ),
    CLUSTER: Experiment(
        tables="experiments.cluster.tables:tables_of_rows",
        study="experiments.cluster.compare:STUDY",
        no_trainer="this experiment simulates a cluster, which nothing trains: use bayplan compare, or experiment=demo",
    ),
    STABILITY: Experiment(
        tables="experiments.stability.outcomes:tables_of",
        no_study="this experiment trains under sessions, which are no plans: use bayplan train",
        root="experiments.stability.settings:ROOT",
        trainer="experiments.stability.train:main",
    ),
    RANKS: Experiment(
        tables="experiments.ranks.outcomes:tables_of_rows",
        no_study="this experiment trains over several devices, without plans: use bayplan train",
        root="experiments.ranks.settings:ROOT",
        trainer="experiments.ranks.train:main",
    ),
    RECOMPUTE: Experiment(
        tables="experiments.recompute.outcomes:tables_of",
        no_study="this experiment executes recomputation on several devices: use bayplan train",
        root="experiments.recompute.settings:ROOT",
        trainer="experiments.recompute.train:main",
    ),
    ELASTIC: Experiment(
        tables="experiments.elastic.outcomes:tables_of_rows",
        no_study="this experiment trains on processes that fail, which is no comparison of plans: use bayplan train",
        root="experiments.elastic.settings:ROOT",
        trainer="experiments.elastic.train:main",
        quiet=True,
    ),
    LAYOUT: Experiment(
        tables="experiments.layout.train:tables_of",
        no_study="this experiment executes layouts of a model larger than the device: use bayplan train",
        root="experiments.layout.settings:ROOT",
        trainer="experiments.layout.train:main",
    ),
}
"""The experiments whose file says `kind: NAME`; those that say nothing train a model."""


def study_of(kind: str) -> "Study[Any]":
    """What `bayplan compare` runs; raises `InvalidInput` for a kind that cannot be compared."""
    target = KINDS[kind].study
    if target is None:
        raise InvalidInput(KINDS[kind].no_study)
    study: Study[Any] = load(target)
    return study


def tables_of_kind(kind: str, rows: "Sequence[Row]") -> "list[Table]":
    """A kind's rows as its own tables."""
    tables: list[Table] = load(KINDS[kind].tables)(rows)
    return tables


def root_of(kind: str) -> "Root":
    """Where the settings of a kind begin."""
    target = KINDS[kind].root
    root: Root = study_of(kind).root if target is None else load(target)
    return root


def usage_of_trainer(kind: str) -> str | None:
    """What a kind's own trainer says of itself; None where it has none."""
    target = KINDS[kind].trainer
    return None if target is None else str(load(target.replace(":main", ":USAGE")))


def trainer_of(kind: str) -> Callable[[Sequence[str]], int] | None:
    """A kind's own `main` of `bayplan train`; None: it is trained under plans, if at all."""
    target = KINDS[kind].trainer
    if KINDS[kind].quiet:
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # of the processes that it starts
    return None if target is None else load(target)


def kind_of(argv: Sequence[str]) -> str:
    """The kind of the experiment that these overrides choose; unknown ones are the training command's to refuse."""
    chosen = [word.partition("=")[2] for word in argv if word.lstrip("+").startswith("experiment=")]
    if not chosen or not re.fullmatch(r"[\w.-]+", chosen[-1]):
        return TRAINING
    searched = [Path(place) / "experiment" for place in re.findall(r"file://([^\]',]+)", " ".join(argv))]
    files = [folder / f"{chosen[-1]}.yaml" for folder in (EXPERIMENTS, *searched)]
    path = next((file for file in files if file.is_file()), None)
    if path is None:
        return TRAINING
    said = re.search(r"^kind: *(\w+) *$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return said[1] if said and said[1] in KINDS else TRAINING
