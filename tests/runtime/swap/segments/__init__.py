"""Budgets kept in segments: what sessions and planned runs do on an allocator as CUDA's is. Modelled, no GPU."""
