"""What a schedule would do: lanes, memory over time, stalls by cause, and a trace to look at."""

from solvers.timeline.lanes import makespan_us, run_lanes
from solvers.timeline.simulate import simulate
from solvers.timeline.trace import chrome_trace

__all__ = ["chrome_trace", "makespan_us", "run_lanes", "simulate"]
