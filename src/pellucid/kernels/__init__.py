"""Parts that stand under the code and make it faster: another engine for matrix products, kept memory, cached words.

You can understand everything without it. Nothing here computes what a function of `model/` or `objectives/` says that
it computes: what is written there is what runs. docs/speed.md has the gain of each.
"""
