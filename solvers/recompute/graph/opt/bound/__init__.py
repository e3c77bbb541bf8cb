"""A certified bound: the cut relaxation, where to cut, and a branch and bound over it."""
