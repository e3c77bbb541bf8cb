"""Grids of experiments through Hydra's sweepers and launchers: no cell computed twice, none lost without a word."""
