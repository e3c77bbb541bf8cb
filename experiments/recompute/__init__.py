"""Recomputation executed: `experiment=lynx_tp2` inside communication, and on one device beside PyTorch's own ways."""
