"""PyTorch's own samples of its operators and modules, on device sim against the CPU, bit by bit."""
