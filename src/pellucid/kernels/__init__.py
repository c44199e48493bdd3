"""Faster equivalents of functions elsewhere: you can understand everything without them.

Each function computes the same as a plain one elsewhere, and tests hold the two equal. The builders pass in those of
the model and the loss where `model.kernels` is `fast`. docs/speed.md has the gain of each.
"""
