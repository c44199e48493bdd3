"""Scaling laws: `power_laws.py` fits them, `bootstrap.py` says how far a fit can be trusted."""
