"""Numbers in, plans out: Bayplan's decision problems, their solvers, checkers and timelines, free of PyTorch."""
