"""How good a model is, compared with the truth if that is known: loss, floor, skills, and explanations by token."""
