"""The files of other projects: models that leave for them, and models that come from them."""
