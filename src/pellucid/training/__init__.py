"""Training: optimizers, schedules, one update (`trainer`) and the life of a run (`session`)."""
