"""What a model costs and what it has learned, beyond its loss."""
