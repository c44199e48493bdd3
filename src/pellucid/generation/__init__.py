"""From a trained decoder to text: logits to a token, tokens to a stream, the stream to text."""

from pellucid.generation.sampling import Sampling
from pellucid.generation.text import Completion, generate_text

__all__ = ["Completion", "Sampling", "generate_text"]
