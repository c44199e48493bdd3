"""Faster ways to the results of other rooms: nothing here is needed to understand anything.

Each function computes what a plain one elsewhere says, and tests hold the two equal. Those of the model and the loss
are passed in by the builders where `model.kernels` is `fast`. docs/speed.md says what each one pays.
"""
