"""Models to train, real text to train them on, and the convention that a user's own model follows."""

from experiments.models.gpt import Gpt, GptShape, build_gpt
from experiments.models.text import Batches, corpus
from experiments.models.workload import Factory, Step, Workload

__all__ = ["Batches", "Factory", "Gpt", "GptShape", "Step", "Workload", "build_gpt", "corpus"]
