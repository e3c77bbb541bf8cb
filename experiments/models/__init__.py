"""Models to train, real text to train them on, and the convention that a user's own model follows."""

from experiments.models.gpt import Gpt, GptShape, build_gpt
from experiments.models.own import OwnModel, TheirStep
from experiments.models.text import Batches, corpus
from experiments.models.workload import Model, Step, Workload

__all__ = ["Batches", "Gpt", "GptShape", "Model", "OwnModel", "Step", "TheirStep", "Workload", "build_gpt", "corpus"]
