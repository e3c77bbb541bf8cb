"""The tape, tried on programs, on ranks, in sessions and on all operators of PyTorch."""
