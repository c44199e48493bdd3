"""What training minimises: an objective runs the model on a batch and returns its loss, as a sum and a count."""
