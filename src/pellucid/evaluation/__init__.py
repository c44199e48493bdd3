"""How good a model is, beside the truth where that is known: loss, floor, skills, and explanations token by token."""
