"""Loops whose sizes vary from iteration to iteration, in a session."""
