"""One training step by each way of spending less memory: recomputation, offloading, sessions, executed plans."""

from experiments.bench.offload.figures import offload_figures

__all__ = ["offload_figures"]
