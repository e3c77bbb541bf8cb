"""`opt`: near-optimal plans of large graphs, with a bound that anyone can add up again."""
