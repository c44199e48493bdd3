"""How much each head of a model of `chains` looks at the first token, beside the weight of the prior in Bayes' rule.

Remakes: sink
Takes: half a minute
Needs: checkpoints/chains

After n earlier steps from the state now, the best reader gives the prior a weight of k alpha / (n + k alpha). A head
with a sink at the first token would give it that weight. The last column fits the alpha with which Bayes' rule would
say most nearly what the model says.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from results import Entry

from pellucid.corpora.drawn import Drawn
from pellucid.inspection.trace import trace
from pellucid.languages.chains import Chains
from pellucid.model.decoder import Decoder
from pellucid.trained import load_trained_run

Floats = NDArray[np.float64]
STEPS = {"1": (1, 1), "2–3": (2, 3), "4–7": (4, 7), "8–15": (8, 15), "16 and more": (16, 1000)}
ALPHAS = np.geomspace(0.05, 20, 400)


def measure(run: Path, *, n_documents: int = 200) -> Iterator[Entry]:
    trained, _ = load_trained_run(run)
    corpus, model, tokenizer = trained.corpus(), trained.model, trained.tokenizer
    assert isinstance(corpus, Drawn)
    assert isinstance(corpus.language, Chains)
    assert isinstance(model, Decoder)
    language, rng = corpus.language, random.Random("sink")
    token_ids = [tokenizer.encode(f" {name}")[0] for name in language.names]
    weights: dict[int, list[Floats]] = defaultdict(list)  # by n: of each head, on the first token
    said: dict[int, list[tuple[Floats, Floats]]] = defaultdict(list)  # by n: counts of what followed, p of the model
    for _ in range(n_documents):
        text = language.write(rng)
        seen = trace(model.cpu().float(), [tokenizer.end_of_text, *tokenizer.encode(text)][: model.context_length])
        p_TK = seen.logits[-1].softmax(-1)[:, token_ids].double().numpy()
        state = language.begin()
        for place, (_, symbol) in enumerate(list(language.steps(text))[: language.length - 1], start=1):
            state = language.after(state, symbol)
            counts = np.array(state.pairs[state.last], dtype=float)
            n = int(counts.sum())
            weights[n].append(seen.attention[:, :, place, 0].double().numpy().ravel())
            said[n].append((counts, p_TK[place] / p_TK[place].sum()))
    k, n_heads = len(language.names), seen.attention.size(1)
    rows = {}
    for name, (low, high) in STEPS.items():
        ns = [n for n in weights if low <= n <= high]
        prior = np.concatenate([[k * language.alpha / (n + k * language.alpha)] * len(weights[n]) for n in ns])
        of_heads = np.concatenate([weights[n] for n in ns]).mean(axis=0)
        heads = {f"head {i // n_heads + 1}.{i % n_heads + 1}": round(float(w), 2) for i, w in enumerate(of_heads)}
        alpha = fitted_alpha([each for n in ns for each in said[n]])
        rows[name] = {"prior": round(float(prior.mean()), 2), **heads, "alpha of what it says": round(alpha, 2)}
    yield Entry("sink", rows, ["languages/chains"], numbers="fp32")


def fitted_alpha(said: list[tuple[Floats, Floats]]) -> float:
    """The alpha whose predictions (n_j + alpha) / (n + k alpha) are nearest to the model's, by KL divergence."""
    counts_NK, p_NK = (np.array(part) for part in zip(*said, strict=True))
    k = counts_NK.shape[1]

    def divergence(alpha: float) -> float:
        bayes_NK = (counts_NK + alpha) / (counts_NK.sum(axis=1, keepdims=True) + k * alpha)
        return float((p_NK * np.log(p_NK / bayes_NK)).sum(axis=1).mean())

    return float(ALPHAS[np.argmin([divergence(alpha) for alpha in ALPHAS])])
