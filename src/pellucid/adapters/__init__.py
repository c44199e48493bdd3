"""Adapters and quantized weights, which wrap the layers of a model without changing its files."""
