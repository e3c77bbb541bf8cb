"""Training that goes on when processes fail: plans of `solvers.replan`, executed live (README.md)."""

from runtime.elastic.alone import Alone, train_alone
from runtime.elastic.hugging_face import from_transformers, plain_names
from runtime.elastic.job import ElasticJob, load_job
from runtime.elastic.measure import Link
from runtime.elastic.moments import parse_kills
from runtime.elastic.outcome import PARTS, Outcome, Recovery
from runtime.elastic.train import Options, train

__all__ = [
    "PARTS",
    "Alone",
    "ElasticJob",
    "Link",
    "Options",
    "Outcome",
    "Recovery",
    "from_transformers",
    "load_job",
    "parse_kills",
    "plain_names",
    "train",
    "train_alone",
]
