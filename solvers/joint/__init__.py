"""`joint`: which outputs stay on the device, leave for the host, or are computed again, decided together."""

from solvers.joint.greedy import GreedyJoint
from solvers.joint.solver import Joint

__all__ = ["GreedyJoint", "Joint"]
