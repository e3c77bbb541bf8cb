"""Lynx's recomputation: what to keep, what to compute again, and behind which communication."""
