"""Adapters and compressed weights: around the layers of a model, never inside its files."""
