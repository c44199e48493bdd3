"""Looking inside a trained model: traces, heads, knock-outs, probes, and the truth beside each prediction."""
