"""The exact distribution of a token given both sides: the tokens before it and those after it.

    p(token | both sides) ∝ p(the document with this token in the place)

A token that cannot stand there after the tokens before it makes the document impossible, so few have to be tried. The
truth of the first held-out documents is computed when it is first needed, and kept:

    val.both_sides/   nats.bin   −ln p of each target of the token file, little-endian float64; 0 where documents end
                      SHA256SUMS
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from pellucid.config.data import CorpusConfig
from pellucid.corpora.build import build_corpus
from pellucid.corpora.drawn import Drawn
from pellucid.data.prepare import CHECKSUMS_FILE, checksums, is_intact
from pellucid.data.prepared import PreparedData
from pellucid.data.token_truth import TokenTruth
from pellucid.data.truth import UNWRITABLE, Distribution, next_token_distributions, normalized
from pellucid.errors import DataError
from pellucid.files import written_whole
from pellucid.languages.language import Language
from pellucid.tokenizer import Tokenizer

FOLDER, NATS = "val.both_sides", "nats.bin"


def distributions_from_both_sides(language: Language, tokenizer: Tokenizer, text: str) -> Iterator[Distribution]:
    """p(token | all others) at each place of a document, its end left out. Nothing for a text that is none."""
    ids, log_p = tokenizer.encode(text), language.log_probability(text)
    if log_p == -math.inf:
        return
    for place, before in enumerate(islice(next_token_distributions(language, tokenizer, text), len(ids))):
        logs = {ids[place]: log_p}
        for other in before.keys() - {ids[place], UNWRITABLE, tokenizer.end_of_text}:
            changed = [*ids[:place], other, *ids[place + 1 :]]
            spelled = tokenizer.decode(changed)
            if tokenizer.encode(spelled) == changed:  # else no document is cut into these tokens
                logs[other] = language.log_probability(spelled)
        yield normalized({id_: math.exp(each - log_p) for id_, each in logs.items() if each > -math.inf})


def truth_from_both_sides(
    data: PreparedData, section: CorpusConfig, boundaries: NDArray[np.int64]
) -> TokenTruth | None:
    """The truth of the validation targets up to the last of these boundaries, where it is known; see the top.

    DataError if the corpus is no longer the one of which the tokens were made.
    """
    if data.truth is None:
        return None
    corpus, tokenizer = build_corpus(section), data.tokenizer
    if not isinstance(corpus, Drawn) or corpus.identity != data.manifest.corpus:
        fix = "bring back the files, or the version of Pellucid, that it was made with, or train again"
        raise DataError("corpus", "it is not, or no longer, the one of which these tokens were made", fix)
    folder, n_targets = data.directory / FOLDER, int(boundaries[-1] - boundaries[0])
    with FileLock(data.directory / f".{FOLDER}.lock"):  # one process computes, the others wait
        known = np.frombuffer((folder / NATS).read_bytes() if is_intact(folder, [NATS]) else b"", "<f8")
        if len(known) < n_targets:
            n_known = int(np.searchsorted(boundaries, len(known)))
            texts = islice(corpus.documents("validation"), n_known, len(boundaries) - 1)
            new = [nats for text in texts for nats in nats_of(corpus.language, tokenizer, text)]
            known = np.concatenate([known, new])
            with written_whole(folder) as draft:
                draft.mkdir()
                (draft / NATS).write_bytes(known.astype("<f8").tobytes())
                (draft / CHECKSUMS_FILE).write_bytes(checksums(draft, [NATS]))
    return replace(data.truth, nats=known)


def nats_of(language: Language, tokenizer: Tokenizer, text: str) -> list[float]:
    """−ln p of each token of a document given all others, and 0 for its end."""
    truths = distributions_from_both_sides(language, tokenizer, text)
    return [*(-math.log(p[id_]) for id_, p in zip(tokenizer.encode(text), truths, strict=True)), 0.0]
