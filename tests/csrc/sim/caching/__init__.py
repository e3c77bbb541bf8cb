"""Mode caching of the simulated device: each rule, sequences against a model of the rules, and against CUDA."""
