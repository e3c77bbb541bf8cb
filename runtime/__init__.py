"""PyTorch: profiles training, executes schedules, recovers from failures. Decides nothing."""
