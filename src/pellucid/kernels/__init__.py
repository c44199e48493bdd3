"""The same mathematics, faster: nothing here is needed to understand anything.

Each function computes what a plain one in model/ or training/ says, is held equal to it by tests/kernels/, and is
passed in by a builder where `model.kernels` is `fast`. docs/speed.md has a row for each that says what it pays.
"""
