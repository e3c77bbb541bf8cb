"""`make bench`: speed and quality of the solvers, and what one operator record costs; every figure is of one run."""
