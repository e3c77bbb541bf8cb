"""The simulated accelerator is registered while tests are collected: before any backward pass."""

from tests.accelerators import prepare_sim

prepare_sim()
