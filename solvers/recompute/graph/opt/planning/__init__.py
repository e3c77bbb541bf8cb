"""Plans of layered graphs: a pattern for each layer, packed into windows."""
