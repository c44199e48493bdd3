"""Faster ways to compute what other folders compute: you can understand everything without them.

Each function computes what a plain one elsewhere says, and tests hold the two equal. Those of the model and the loss
are passed in by the builders where `model.kernels` is `fast`. docs/speed.md says what each one pays.
"""
