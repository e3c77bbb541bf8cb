"""What `make gpu` does on a machine with a GPU, within nine minutes; its driver imports the standard library only."""
