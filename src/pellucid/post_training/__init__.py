"""Learning after pretraining: rewards and answers to learn from."""
