"""The same job and kills under others' fault tolerance: torchrun restarts everyone, torchft drops a replica."""
