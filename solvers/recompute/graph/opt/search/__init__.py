"""Plans of graphs of any shape: a first one within the budget, and local search from there."""
