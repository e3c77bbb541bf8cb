"""Recomputes what a plan discards: operators of unmodified modules run again, where and when the plan says (Lynx)."""

from runtime.recompute.report import RecomputeReport
from runtime.recompute.session import RecomputeSession, plan
from runtime.recompute.tape import EVERYTHING, NOTHING, Node, StorePolicy, Tape, record

__all__ = [
    "EVERYTHING",
    "NOTHING",
    "Node",
    "RecomputeReport",
    "RecomputeSession",
    "StorePolicy",
    "Tape",
    "plan",
    "record",
]
