"""The step directory: a trained model and all that its training needs to go on, written whole or not at all."""
