"""Grammars: rules that write texts, and compute with them.

Read in this order: notation (the language of rules) -> grammar (writing and reading a text) -> entropy, continuations,
skills, deciding -> texts (for use elsewhere), checks and own (a grammar from a file).
"""
