"""PyTorch's own samples of its operators and modules, recorded on a tape that stores nothing."""
