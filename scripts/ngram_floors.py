"""The least loss of models that see only the last tokens, exactly, on the Fables of a config.

    python scripts/ngram_floors.py configs/fables.yaml --most 3

Line n is for an n-gram model, which sees n - 1 tokens: no such model does better on average, however it is made. Beside
the bigram's floor stands what a bigram gets on the held-out fables when it is counted on the training text.
"""

from __future__ import annotations

from pathlib import Path

import torch
from fable_ngrams import expected_ngrams, floor_of
from results import parser, print_table, record

from pellucid.config.languages import FablesConfig
from pellucid.config.load import load_run_config
from pellucid.data.pairs import count_pairs
from pellucid.languages.fables import Fables
from pellucid.model.bigram import Bigram
from pellucid.recipe import prepare_data


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("config", type=Path)
    arguments.add_argument("--most", type=int, default=3, help="the longest n-grams; 3 take a minute")
    options = arguments.parse_args()

    config = load_run_config(options.config)
    data = prepare_data(config, Path("data"))
    assert isinstance(config.corpus, FablesConfig), "only the grammar of Fables is known"
    fables = Fables(config.corpus.world_size)
    floors = {}
    for n in range(1, options.most + 1):
        ngrams = expected_ngrams(fables, data.tokenizer, n)
        seen = {1: "none", 2: "the last one"}.get(n, f"the last {n - 1}")
        floors[seen] = {"floor (nats per token)": floor_of(ngrams), "different n-grams": len(ngrams)}
    floors["all"] = {"floor (nats per token)": fables.entropy_nats / sum(ngrams.values()), "different n-grams": ""}
    print_table("tokens seen", floors)

    counted = Bigram(data.tokenizer.vocab_size, config.model.context_length)
    counted.set_counts(torch.from_numpy(count_pairs(data.train, counted.vocab_size)))
    held_out = torch.from_numpy(data.validation.tokens.astype("int64"))
    with torch.inference_mode():
        loss = torch.nn.functional.cross_entropy(counted(held_out[None, :-1])[0], held_out[1:]).item()
    print(f"\nloss of the counted bigram on the held-out fables: {loss:.4f} nats per token")
    if options.record:
        record("ngram_floors", {"floors": floors, "counted bigram": {"loss": loss}}, ["fables"], numbers="fp64")


if __name__ == "__main__":
    main()
