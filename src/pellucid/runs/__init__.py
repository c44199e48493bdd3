"""Runs as a whole: train, resume, start from another, evaluate, enter a contest, count the cost."""
