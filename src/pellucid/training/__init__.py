"""How a decoder learns: objective, optimizer, schedule, precision, and the loop that puts them together."""
