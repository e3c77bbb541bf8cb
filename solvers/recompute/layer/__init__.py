"""Lynx-HEU's decision: what each of a stage's identical layers stores, recomputes, and inside which communication."""

from solvers.recompute.layer.adapipe import AdaPipe
from solvers.recompute.layer.checkmate import CheckmateLayer
from solvers.recompute.layer.front import Choice, Front, Policy, TooManyStates, forget_fronts, front_of
from solvers.recompute.layer.heu import Heu
from solvers.recompute.layer.layer import Layer
from solvers.recompute.layer.make import layer_ops, layer_problem, layer_windows
from solvers.recompute.layer.rules import Block, Full, Uniform
from solvers.recompute.layer.selective import Selective

__all__ = [
    "AdaPipe",
    "Block",
    "CheckmateLayer",
    "Choice",
    "Front",
    "Full",
    "Heu",
    "Layer",
    "Policy",
    "Selective",
    "TooManyStates",
    "Uniform",
    "forget_fronts",
    "front_of",
    "layer_ops",
    "layer_problem",
    "layer_windows",
]
