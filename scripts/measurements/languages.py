"""What there is to learn in each language, and what a run of its shipped config leaves of that.

Remakes: languages
Takes: 5 minutes
Needs: a run of each configs/languages/*.yaml, and the demo

Of new documents: their floor, what a reader spends who knows how often each token occurs and nothing else, and the
run's excess in both scales. Of `sums`, whose pairs are few: of those that training never showed. The entropy of a
document is exact, or a mean over these documents of the exact entropies of each next symbol, with the half width of its
interval.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from results import Entry

from pellucid.config.shipped import DEMO
from pellucid.corpora.corpus import Piece
from pellucid.corpora.drawn import Drawn
from pellucid.corpora.sums import DrawnSums
from pellucid.data.batches import evaluation_batches
from pellucid.data.in_memory import pieces_as_tokens
from pellucid.data.token_truth import TokenTruth
from pellucid.data.truth import truth_of_texts
from pellucid.evaluation.estimate import Estimate, mean_of, ratio
from pellucid.evaluation.loss import evaluation_of, score
from pellucid.evaluation.proof import by_document
from pellucid.languages.language import Language
from pellucid.languages.symbols import SymbolLanguage, entropy
from pellucid.trained import load_trained_run

LANGUAGES = ("chains", "lookup", "hops", "brackets", "sums", "hidden", "trees", "weather")


def measure(folder: Path = Path("checkpoints"), *, demo: Path = DEMO, n_documents: int = 1000) -> Iterator[Entry]:
    """folder: where the runs are, each named as its config."""
    runs = {**{f"`{name}`": folder / name for name in LANGUAGES}, "fables, the demo": demo}
    rows = {name: row_of(run, n_documents) for name, run in runs.items()}
    yield Entry("languages", rows, ["fables", *(f"languages/{name}" for name in LANGUAGES)])


def row_of(run: Path, n_documents: int) -> dict[str, float | str]:
    trained, precision = load_trained_run(run)
    corpus, tokenizer, rng = trained.corpus(), trained.tokenizer, random.Random("languages")
    assert isinstance(corpus, Drawn)
    language = corpus.language
    if isinstance(corpus, DrawnSums):
        texts = list(corpus.documents("validation"))[:n_documents]
    else:
        texts = [language.write(rng) for _ in range(n_documents)]
    tokens = pieces_as_tokens(str(run), [Piece(text, ends_document=True) for text in texts], tokenizer)
    nats, characters = zip(*truth_of_texts(language, tokenizer, iter(texts)), strict=True)
    truth = TokenTruth(tuple(language.skills), np.concatenate(nats), np.concatenate(characters))
    batch_size, length = trained.config.train.batch_size, trained.model.context_length
    scores = score(trained.model, evaluation_batches(tokens, length, batch_size, from_document_starts=True), precision)
    of_run = evaluation_of(scores, tokens, tokenizer, truth)
    floor_N = truth.nats[scores.places]
    floor_F, excess_F = (
        by_document(each, scores.places, tokens.boundaries) for each in (floor_N, scores.nats - floor_N)
    )
    excess, exact = ratio(100 * excess_F, floor_F), entropy_of(language, texts)
    assert of_run.left_to_learn is not None
    assert of_run.impossible is not None
    return {
        "entropy": exact.mean,
        "±": exact.half_width or "exact",
        "floor": float(floor_N.mean()),
        "no context": of_run.frequency_nats / of_run.n_tokens,
        "excess (%)": excess.mean,
        "of what context tells (%)": 100 * of_run.left_to_learn,
        "its ±": 100 * of_run.left_to_learn * excess.half_width / abs(excess.mean),
        "impossible (%)": 100 * of_run.impossible.mean,
        "its ± (%)": 100 * of_run.impossible.half_width,
    }


def entropy_of(language: Language, texts: Sequence[str]) -> Estimate:
    """In nats per document; exact if it has no half width."""
    exact: float | None = getattr(language, "entropy_nats", None)
    if exact is not None:
        return Estimate(exact, 0.0)
    assert isinstance(language, SymbolLanguage)
    sums = [sum(entropy(language.following(state)) for state, _ in language.steps(text)) for text in texts]
    return mean_of(np.array(sums))
