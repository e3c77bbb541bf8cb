"""Measures one real training step (`profile_step`) and one device (`calibrate`)."""

from runtime.profile.calibration import calibrate
from runtime.profile.factory import Training, call_theirs, load_factory, shapes_refusal, told
from runtime.profile.requests import RecordedStep, Request, record_requests
from runtime.profile.step import profile_step, record_step

__all__ = [
    "RecordedStep",
    "Request",
    "Training",
    "calibrate",
    "call_theirs",
    "load_factory",
    "profile_step",
    "record_requests",
    "record_step",
    "shapes_refusal",
    "told",
]
