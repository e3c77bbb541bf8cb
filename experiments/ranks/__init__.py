"""`bayplan train experiment=ranks`: ordinary torch.distributed programs on simulated devices, against one process."""
