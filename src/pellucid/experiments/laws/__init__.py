"""Scaling laws: `power_laws.py` fits them, `bootstrap.py` gives their confidence intervals."""
