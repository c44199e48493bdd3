"""Texts of which not all is learned: conversations, in the chat template, and those in which a tool answers."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pellucid.corpora.corpus import Split, Turn
from pellucid.corpora.drawn import Drawn
from pellucid.data.token_file import TokenFileWriter, targets_path
from pellucid.languages.symbols import SymbolLanguage, symbols_of
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


def write_own_tokens(corpus: Drawn, tokenizer: Tokenizer, paths: Mapping[Split, Path]) -> None:
    """Write the targets file of each split of a language with a tool, whose answers are not learned."""
    assert isinstance(corpus.language, SymbolLanguage)
    for split, path in paths.items():
        is_own = [own_tokens(corpus.language, tokenizer, text) for text in corpus.documents(split)]
        targets_path(path).write_bytes(np.concatenate([[False], *is_own]).tobytes())


def own_tokens(language: SymbolLanguage[Any], tokenizer: Tokenizer, text: str) -> NDArray[np.bool_]:
    """Whether each token of a document, and its end, is the writer's own, and not of a symbol of the tool."""
    symbols = symbols_of(text)
    is_own = [not language.environment(symbols[:n]) for n in range(len(symbols))]
    own_bytes = np.repeat(is_own, [len(f" {symbol}") for symbol in symbols])  # symbols are ASCII
    lengths = [len(tokenizer.token_bytes(id_)) for id_ in tokenizer.encode(text)]
    return np.append(own_bytes[np.cumsum([0, *lengths[:-1]])], True)
