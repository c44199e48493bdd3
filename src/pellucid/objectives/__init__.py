"""Objectives: functions that run the model on a batch and return its loss, as a sum and a count."""
