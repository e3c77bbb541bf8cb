"""`experiment=protrain`: a model larger than the device trains under layouts, beside FSDP2 and plain training."""
