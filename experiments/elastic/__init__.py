"""Training that goes on when processes fail, as an experiment."""
