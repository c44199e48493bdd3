"""The step directory: a trained model and all its training needs to continue, written completely or not at all."""
