"""The repeated blocks of a model, and what each does with its activations: keep, swap or recompute them."""
