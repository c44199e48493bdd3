"""Experiments: many runs that answer one question. Plan, processes, results, figures, report."""
