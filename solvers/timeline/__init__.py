"""What a schedule would do: lanes, memory over time, stalls by cause, and a trace to look at."""

from solvers.timeline.lanes import makespan_us, run_lanes
from solvers.timeline.peak import promised_peak_bytes
from solvers.timeline.pipeline.memory import StageBytes, StageMemory, hiding_fits, stage_memory
from solvers.timeline.pipeline.picture import pipeline_report, pipeline_schedule
from solvers.timeline.pipeline.times import PipelineTimes, pipeline, pipeline_makespan_us
from solvers.timeline.simulate import simulate
from solvers.timeline.trace import chrome_trace

__all__ = [
    "PipelineTimes",
    "StageBytes",
    "StageMemory",
    "chrome_trace",
    "hiding_fits",
    "makespan_us",
    "pipeline",
    "pipeline_makespan_us",
    "pipeline_report",
    "pipeline_schedule",
    "promised_peak_bytes",
    "run_lanes",
    "simulate",
    "stage_memory",
]
