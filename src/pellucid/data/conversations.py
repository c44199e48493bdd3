"""Conversations as token files, in the chat template, with a mask of the tokens to learn."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from pellucid.corpora.corpus import Turn
from pellucid.data.token_file import TokenFileWriter, targets_path
from pellucid.tokenizer import Tokenizer
from pellucid.tokenizer.chat import in_template


def write_conversations(conversations: Iterable[Sequence[Turn]], tokenizer: Tokenizer, path: Path) -> tuple[int, int]:
    """Write a token file with one conversation per document, and its targets file, which marks answers and their ends.

    Returns the numbers of UTF-8 bytes and of characters in the answers.
    """
    n_bytes = n_characters = 0
    with (
        TokenFileWriter(path, vocab_size=tokenizer.vocab_size, end_of_text=tokenizer.end_of_text) as writer,
        targets_path(path).open("wb") as targets_file,
    ):
        targets_file.write(b"\0")  # the end_of_text before the first document
        for turns in conversations:
            encoded = tokenizer.encode_exactly([text for _, text in turns])  # faster than one by one: it caches words
            document: list[int] = []
            for (role, text), text_ids in zip(turns, encoded, strict=True):
                ids, n_targets = in_template(tokenizer, role, text_ids.tolist())
                document += ids
                targets_file.write(b"\0" * (len(ids) - n_targets) + b"\1" * n_targets)
                n_bytes += len(text.encode()) if n_targets else 0
                n_characters += len(text) if n_targets else 0
            writer.append(np.array([*document, tokenizer.end_of_text]), ends=[len(document)])
            targets_file.write(b"\0")
    return n_bytes, n_characters
