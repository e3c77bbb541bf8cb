"""Is optimal worth it? Keep, swap and recompute together beside each alone, on layers of known models."""
