"""How much two batches of pairs agree about what DPO should learn: the cosine of their gradients.

Remakes: pairs
Takes: 2 minutes
Needs: checkpoints/instructions_sft

Pairs of answers of a fine-tuned model, made in different ways: independent or forked, whole or cut. Where two batches
of pairs agree little, most of their gradients is noise.
"""

import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from results import Entry, here

from pellucid.corpora.instructions import InstructionsCorpus
from pellucid.objectives.preference import dpo
from pellucid.post_training.build import answer_log_probabilities
from pellucid.post_training.pairs import Pair, PairWriter, pair_batch
from pellucid.post_training.rewards import GrammarJudge
from pellucid.tokenizer.chat import prompt_ids
from pellucid.trained import load_trained_run

N_PAIRS = 128  # in two batches
PAIRS_AT_ONCE = 16


def measure(run: Path) -> Iterator[Entry]:
    """run: one that was fine-tuned on instructions."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    trained, precision = load_trained_run(run, "latest")
    model, tokenizer, corpus = trained.model, trained.tokenizer, trained.corpus()
    assert isinstance(corpus, InstructionsCorpus)
    judge = GrammarJudge(corpus, tokenizer)

    def prompt(number: int) -> list[int]:
        return prompt_ids(tokenizer, [("user", corpus.ask(random.Random(f"q{number}"), "train").text)])

    table: dict[str, dict[str, float]] = {}
    for name, fork in {"independent": False, "fork": True}.items():
        write = PairWriter(
            model=model,
            prompt=prompt,
            judge=judge,
            precision=precision,
            stop_ids=tokenizer.control_ids,
            max_new_tokens=200,
            noise=0.1,
            seeds=(5, 0),
            fork=fork,
        )
        pairs = [pair for pair in write(range(N_PAIRS)) if pair is not None]
        table[name] = {}
        for of_cut, cut in cuts(judge.n_until_settled).items():
            halves = [[cut(pair) for pair in half] for half in (pairs[: N_PAIRS // 2], pairs[N_PAIRS // 2 :])]
            gradients = [gradient(model, precision, half) for half in halves]
            table[name][of_cut] = float(torch.nn.functional.cosine_similarity(*gradients, dim=0))
    torch.set_num_threads(n_threads)  # those of the machine that is named
    yield Entry(here("pairs"), table, ["fables", "instructions_sft"])


def cuts(settled: Callable[[Any, Any], int]) -> dict[str, Callable[[Pair], Pair]]:
    """Ways to cut both answers of a pair. `settled`: after how many tokens of an answer the verdict is certain."""

    def each(pair: Pair) -> Pair:
        return Pair(pair.prompt, *(a[: settled(pair.prompt, a)] for a in (pair.chosen, pair.rejected)))

    def both(pair: Pair) -> Pair:
        return Pair(pair.prompt, *(a[: settled(pair.prompt, pair.rejected)] for a in (pair.chosen, pair.rejected)))

    return {"whole answers": lambda pair: pair, "cut: each": each, "cut: both": both}


def gradient(model: Any, precision: Any, pairs: list[Pair]) -> torch.Tensor:
    """The gradient of the loss of the pairs, the model being its own reference: beta does not change its direction."""
    model.zero_grad()
    log_p = partial(answer_log_probabilities, model, precision)
    for first in range(0, len(pairs), PAIRS_AT_ONCE):
        dpo(model, pair_batch(pairs[first : first + PAIRS_AT_ONCE], log_p), beta=1.0).sum.backward()
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
