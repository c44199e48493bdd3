"""From a trained decoder to text: logits to a token, tokens to a stream, the stream to text."""
