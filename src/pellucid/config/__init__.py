"""The schema of a run's YAML file: its keys, their valid values, and clear errors.

Nothing here imports torch, so that reading and checking a config is instant.
"""
