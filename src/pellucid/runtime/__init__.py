"""Devices, precision and processes, for all other rooms."""
