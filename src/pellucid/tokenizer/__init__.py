"""Text to token ids and back."""

from pellucid.tokenizer.tokenizer import Tokenizer

__all__ = ["Tokenizer"]
