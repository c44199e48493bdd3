"""How good a model is, compared with the truth where that is known: loss, floor, skills and answers."""
