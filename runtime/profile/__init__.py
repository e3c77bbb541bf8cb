"""Measures one real training step (`profile_step`) and one device (`calibrate`)."""

from runtime.profile.calibration import calibrate
from runtime.profile.factory import Training, call_theirs, load_factory, told
from runtime.profile.step import profile_step

__all__ = ["Training", "calibrate", "call_theirs", "load_factory", "profile_step", "told"]
