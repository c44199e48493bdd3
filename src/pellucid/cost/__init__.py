"""The cost of a model, counted before anything is built: parameters, FLOPs, memory, time."""
