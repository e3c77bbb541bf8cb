"""What a planned step would do: restart, transfers, every pass of every pipeline, synchronization, node by node."""

from solvers.replan.timeline.simulated import Simulated, simulate_step, step_report

__all__ = ["Simulated", "simulate_step", "step_report"]
