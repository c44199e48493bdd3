"""The texts of a grammar as a form, token by token: which tokens can come next, whatever their bytes begin or end.

A token may be a part of a word, or end one and begin the next. So the ways in which the grammar goes on are compared
with the vocabulary byte by byte, both as trees: each way is followed down the tree of the vocabulary, and the tokens
that end on it are allowed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from pellucid.languages.grammar.grammar import Fork, Grammar
from pellucid.tokenizer import Tokenizer

Way = tuple[bytes, Fork | None]  # bytes that come next, and the choice after them; None at the text's end
Tree = dict[Any, Any]  # byte -> the tree after it, and TOKENS -> ids of the tokens that end here
TOKENS = "tokens"


class GrammarForm:
    """All texts of a grammar."""

    def __init__(self, grammar: Grammar, tokenizer: Tokenizer) -> None:
        self._first, self._tokenizer = grammar.begin(), tokenizer

    def begin(self) -> GrammarBeginning:
        return GrammarBeginning([(b"", self._first)], self._tokenizer)


class GrammarBeginning:
    """The ways on from the beginning of a text. No two of them begin alike, as options of a grammar never do."""

    def __init__(self, ways: Sequence[Way], tokenizer: Tokenizer) -> None:
        self._ways, self._tokenizer = ways, tokenizer

    def allowed(self) -> Tensor:
        """Whether the text can go on with each token, or end with it: (V,)."""
        tree, ids = tree_of(self._tokenizer), set[int]()
        for way in self._ways:
            ids.update(self._tokenizer.stop_ids if way == (b"", None) else tokens_on(tree, way))
        allowed_V = torch.zeros(self._tokenizer.vocab_size, dtype=torch.bool)
        allowed_V[list(ids)] = True
        return allowed_V

    def add(self, token_id: int) -> None:
        spelled = self._tokenizer.token_bytes(token_id)
        self._ways = [after for way in self._ways for after in ways_after(way, spelled)]


def tokens_on(tree: Tree, way: Way) -> Iterator[int]:
    """The tokens whose bytes are a beginning of this way, or of one of those in which it goes on."""
    spelled, fork = way
    for byte in spelled:
        if byte not in tree:
            return
        tree = tree[byte]
        yield from tree.get(TOKENS, ())
    for option in options_of(fork):
        yield from tokens_on(tree, option)


def ways_after(way: Way, written: bytes) -> Iterator[Way]:
    """The rest of a way once these bytes are written; nothing if it has others."""
    spelled, fork = way
    if spelled.startswith(written):
        yield spelled[len(written) :], fork
    elif written.startswith(spelled):
        for option in options_of(fork):
            yield from ways_after(option, written[len(spelled) :])


def options_of(fork: Fork | None) -> Iterator[Way]:
    if fork is not None:
        for text, after in map(fork.write, fork.allowed()):
            yield text.encode(), after


@lru_cache(maxsize=2)
def tree_of(tokenizer: Tokenizer) -> Tree:
    """The tokens of a vocabulary by their bytes."""
    tree: Tree = {}
    for id_ in set(range(tokenizer.vocab_size)).difference(tokenizer.control_ids):
        node = tree
        for byte in tokenizer.token_bytes(id_):
            node = node.setdefault(byte, {})
        node.setdefault(TOKENS, []).append(id_)
    return tree
