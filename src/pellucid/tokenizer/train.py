"""Training a vocabulary on text. Equal texts give equal vocabularies."""

from collections.abc import Iterable, Sequence
from itertools import chain

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from pellucid.errors import DataError
from pellucid.tokenizer.tokenizer import Tokenizer


def train_byte_pairs(texts: Iterable[str], *, vocab_size: int, special_tokens: Sequence[str]) -> Tokenizer:
    """Byte-pair encoding: merge the most frequent neighbours, again and again (equation 1; Sennrich et al. 2016).

    Starts from the 256 bytes and splits text into words as GPT-2 does (Radford et al. 2019). Pairs that occur only once
    are not merged, so a small corpus gives a smaller vocabulary than `vocab_size`. DataError: a control token is also a
    token of text.
    """
    library_tokenizer = tokenizers.Tokenizer(models.BPE())
    library_tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library_tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(special_tokens),
        min_frequency=2,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    library_tokenizer.train_from_iterator(texts, trainer)
    return _with_control_tokens(library_tokenizer, special_tokens)


def train_characters(texts: Iterable[str], *, special_tokens: Sequence[str]) -> Tokenizer:
    """One token for each character of the texts, in the order of their code points."""
    # Byte-pair encoding that never merges anything: it gives each character its own token.
    vocabulary = {character: id_ for id_, character in enumerate(sorted(set(chain.from_iterable(texts))))}
    library_tokenizer = tokenizers.Tokenizer(models.BPE(vocabulary, []))
    library_tokenizer.decoder = decoders.Fuse()
    return _with_control_tokens(library_tokenizer, special_tokens)


def vocabulary_of_ids(texts: Iterable[str], *, n_ids: int | None, special_tokens: Sequence[str]) -> Tokenizer:
    """The numbers from 0 to `n_ids` - 1, or to the largest in the texts, each as the token with this id.

    DataError for an id of `n_ids` or more.
    """
    largest = max((max(map(int, text.split()), default=0) for text in texts), default=0)
    if n_ids is not None and largest >= n_ids:
        fix = f"give {largest + 1} or more, or leave it out"
        raise DataError(f"tokenizer.n_ids {n_ids}", f"the corpus holds the id {largest}", fix)
    numbers = {str(id_): id_ for id_ in range(n_ids or largest + 1)}
    library_tokenizer = tokenizers.Tokenizer(models.WordLevel(numbers))
    library_tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    library_tokenizer.decoder = decoders.Replace(tokenizers.Regex(r"^(?=\d)"), " ")  # a blank before each
    return _with_control_tokens(library_tokenizer, special_tokens)


def _with_control_tokens(library_tokenizer: tokenizers.Tokenizer, special_tokens: Sequence[str]) -> Tokenizer:
    """Add control tokens with the last ids. One that the vocabulary already has would share its id with text."""
    for token in special_tokens:
        if library_tokenizer.token_to_id(token) is not None:
            fix = f"choose what no text is likely to hold, such as '<|{token}|>'"
            raise DataError(f"tokenizer.special_tokens {token!r}", "is a token of ordinary text as well", fix)
    library_tokenizer.add_special_tokens(list(special_tokens))
    return Tokenizer(library_tokenizer)
