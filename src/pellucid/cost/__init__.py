"""What a model costs, counted on paper before anything is built: parameters, FLOPs, memory, time."""
