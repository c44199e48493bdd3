"""Checkpoints: step directories with a model and everything that training needs to continue, written atomically."""
