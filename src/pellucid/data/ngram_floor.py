"""The best that a model can do which sees only the last tokens, where the truth about the text is known.

A bigram's least loss is the entropy H(token | last token). It follows from how often each pair of tokens stands in a
document on average, and that from the words that stand side by side, as each word is spelled by itself.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from functools import cache

from pellucid.corpora.fables.distribution import Fables
from pellucid.corpora.fables.neighbours import END
from pellucid.data.truth import first_word_length
from pellucid.tokenizer import Tokenizer

Ngrams = Mapping[tuple[int, ...], float]


def expected_ngrams(corpus: Fables, tokenizer: Tokenizer, n: int) -> Ngrams:
    """How often each token, with the n - 1 tokens before it, stands in a document: expected numbers, exactly.

    The end_of_text that ends a document is one of the tokens; before its first token stands only another end_of_text.
    """
    encode = cache(tokenizer.encode)
    totals: defaultdict[tuple[int, ...], float] = defaultdict(float)
    for (*words_before, word), number in corpus.expected_words(n, first_word_length).items():
        begins = [tokenizer.end_of_text] if len(words_before) < n - 1 else []
        before = begins + [id_ for earlier in words_before for id_ in encode(earlier)]
        ids = [tokenizer.end_of_text] if word == END else encode(word)
        for i in range(len(ids)):
            totals[tuple([*before, *ids[: i + 1]][-n:])] += number
    return dict(totals)


def floor_of(ngrams: Ngrams) -> float:
    """H(token | the tokens before it in the n-gram), in nats per token: no model that sees no more can do better."""
    before: defaultdict[tuple[int, ...], float] = defaultdict(float)
    for ngram, number in ngrams.items():
        before[ngram[:-1]] += number
    nats = (-number * math.log(number / before[ngram[:-1]]) for ngram, number in ngrams.items())
    return math.fsum(nats) / math.fsum(ngrams.values())
