"""The least loss of models that see only the last tokens, exactly, on the Fables of a config.

Remakes: ngram_floors
Takes: 1 minute
Needs: nothing

Line n is for an n-gram model, which sees n - 1 tokens: no such model does better on average, however it is made. Beside
the bigram's floor stands what a bigram gets on the held-out fables when it is counted on the training text.
"""

from collections.abc import Iterator
from pathlib import Path

import torch
from measurements.fable_ngrams import expected_ngrams, floor_of
from results import Entry
from runs import FABLES

from pellucid.config.languages import FablesConfig
from pellucid.config.load import load_run_config
from pellucid.data.pairs import count_pairs
from pellucid.languages.fables import Fables
from pellucid.model.bigram import Bigram
from pellucid.recipe import prepare_data
from pellucid.tokenizer import Tokenizer


def measure(*, config: Path = FABLES, most: int = 3) -> Iterator[Entry]:
    """most: tokens of the longest n-grams."""
    recipe = load_run_config(config)
    assert isinstance(recipe.corpus, FablesConfig), "only the grammar of Fables is known"
    data, fables = prepare_data(recipe, Path("data")), Fables(recipe.corpus.world_size)
    counted = Bigram(data.tokenizer.vocab_size, recipe.model.context_length)
    counted.set_counts(torch.from_numpy(count_pairs(data.train, counted.vocab_size)))
    held_out = torch.from_numpy(data.validation.tokens.astype("int64"))
    with torch.inference_mode():
        loss = torch.nn.functional.cross_entropy(counted(held_out[None, :-1])[0], held_out[1:]).item()
    figures = {"floors": floors(fables, data.tokenizer, most), "counted bigram": {"loss": loss}}
    yield Entry("ngram_floors", figures, ["fables"], numbers="fp64")


def floors(fables: Fables, tokenizer: Tokenizer, most: int) -> dict[str, dict[str, float | str]]:
    rows: dict[str, dict[str, float | str]] = {}
    for n in range(1, most + 1):
        ngrams = expected_ngrams(fables, tokenizer, n)
        seen = {1: "none", 2: "the last one"}.get(n, f"the last {n - 1}")
        rows[seen] = {"floor (nats per token)": floor_of(ngrams), "different n-grams": len(ngrams)}
    rows["all"] = {"floor (nats per token)": fables.entropy_nats / sum(ngrams.values()), "different n-grams": ""}
    return rows
