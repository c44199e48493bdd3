"""Scaling laws: fitted curves, and how far their parameters can be trusted."""
