"""Learning after pretraining: rewards, answers to learn from, and the best that is possible."""
