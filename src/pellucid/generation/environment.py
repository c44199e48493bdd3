"""A tool that answers while a model writes: a token asks, the environment writes what follows, the model goes on.

     7 8 ?       by the model
           1 5   by the tool, whatever the model would have written

The same texts are learned from with the tool's tokens left out of the loss (`data/conversations.py`).

Shapes: V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pellucid.config.data import CorpusConfig
from pellucid.config.languages import SumsConfig
from pellucid.corpora.build import build_language
from pellucid.generation.stream import FinishReason
from pellucid.languages.symbols import SymbolLanguage, symbols_of
from pellucid.tokenizer import Tokenizer

if TYPE_CHECKING:
    from pellucid.generation.writing import Writing


def tool_of(corpus: CorpusConfig, tokenizer: Tokenizer) -> Callable[[Sequence[int]], TakingTurns]:
    """From a prompt to the tool of this language, which answers, a symbol at a time, whoever goes on from there."""
    assert isinstance(corpus, SumsConfig)
    language = build_language(corpus)
    assert isinstance(language, SymbolLanguage)

    def writes(ids: Sequence[int]) -> list[int]:
        text = tokenizer.decode(id_ for id_ in ids if id_ not in tokenizer.control_ids)
        symbol = language.environment(symbols_of(text))
        return tokenizer.encode(f" {symbol}") if symbol else []

    return partial(TakingTurns, writes)


class TakingTurns:
    """A demand on one text (a `Constraint`): where the tool has something to write, nothing else can be drawn.

    tool: from the tokens so far to those that it writes next, or none.   is_own: which tokens are the model's own.
    """

    def __init__(self, tool: Callable[[Sequence[int]], list[int]], prompt_ids: Sequence[int]) -> None:
        self._tool, self._next, self.is_own = tool, tool(prompt_ids), list[bool]()

    def constrain(self, logits_V: Tensor) -> Tensor:
        only_V = torch.full_like(logits_V, -torch.inf)
        only_V[self._next[:1]] = 0.0
        return only_V if self._next else logits_V

    def drops(self, writing: Writing, reason: FinishReason | None) -> bool:
        self.is_own.append(not self._next)
        self._next = self._next[1:] or self._tool([*writing.prompt_ids, *writing.token_ids])
        return False
