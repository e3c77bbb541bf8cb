"""Lynx-HEU's decision: what each of a stage's identical layers stores, recomputes, and inside which communication."""

from solvers.recompute.layer.front import Choice, Front, Policy, TooManyStates, front_of
from solvers.recompute.layer.heu import Heu
from solvers.recompute.layer.layer import Layer
from solvers.recompute.layer.make import layer_ops, layer_problem, layer_windows

__all__ = [
    "Choice",
    "Front",
    "Heu",
    "Layer",
    "Policy",
    "TooManyStates",
    "front_of",
    "layer_ops",
    "layer_problem",
    "layer_windows",
]
