"""The figures of experiments: one file per kind, and the style and data they share."""
