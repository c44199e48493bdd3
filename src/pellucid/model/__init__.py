"""The decoder: one file per axis of its design, assembled in build.py.

Read decoder.py first, then block.py, attention.py and what they are made of.
"""
