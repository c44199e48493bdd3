"""The Model Microscope: pages that show a trained run, and the server that others call."""
