"""Several simulated devices in one process."""
