"""Languages whose distribution is known exactly: beside every guess of a model stands the truth."""
