"""What PyTorch's caching allocator would hold for a sequence of requests and frees: a model of its public rules."""

from solvers.timeline.segments.allocator import Refused, Segments
from solvers.timeline.segments.headroom import PlanAt, least_planned, planned_and_held
from solvers.timeline.segments.operators import OperatorNeed, most_needed
from solvers.timeline.segments.replay import Event, Moment, Refusal, Replayed, least_limit, replay
from solvers.timeline.segments.requests import Requests, held_before, recorded, repeated, under_schedule
from solvers.timeline.segments.settings import SegmentSettings
from solvers.timeline.segments.steps import StepHeld, held_by_steps, least_held, unlimited

__all__ = [
    "Event",
    "Moment",
    "OperatorNeed",
    "PlanAt",
    "Refusal",
    "Refused",
    "Replayed",
    "Requests",
    "SegmentSettings",
    "Segments",
    "StepHeld",
    "held_before",
    "held_by_steps",
    "least_held",
    "least_limit",
    "least_planned",
    "most_needed",
    "planned_and_held",
    "recorded",
    "repeated",
    "replay",
    "under_schedule",
    "unlimited",
]
