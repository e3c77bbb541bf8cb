"""A real training under every plan: `bayplan compare experiment=demo`, and its sweeps."""
