"""Pipelines of stages: when every pass runs, in which order, and what the stages hold meanwhile."""
