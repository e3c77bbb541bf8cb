"""Hydra's configuration groups; `experiments/config.py` holds their types and ranges."""
