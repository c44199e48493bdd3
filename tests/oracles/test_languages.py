"""Languages of symbols against the libraries of their fields: hmmlearn for hidden states, nltk for trees."""

import math
import random
import warnings

import numpy as np
import pytest

from pellucid.languages.hidden import GOLDEN_MEAN, Hidden, mess3, random_process
from pellucid.languages.trees import Trees, random_grammar


def markov_of_edges(language: Hidden):
    """A hidden Markov model that writes from states, with a state for each step (from i to j by x) of ours."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        hmm = pytest.importorskip("hmmlearn.hmm")
    n, k = len(language.stationary), len(language.names)
    edges = [(i, j, x) for i in range(n) for j in range(n) for x in range(k)]
    model = hmm.CategoricalHMM(n_components=len(edges), n_features=k)
    p_edge = np.array([language.transitions[x][i][j] for i, j, x in edges])
    model.startprob_ = np.array([language.stationary[i] for i, _, _ in edges]) * p_edge
    model.transmat_ = np.array(
        [[p_edge[b] * (edges[a][1] == edges[b][0]) for b in range(len(edges))] for a in range(len(edges))]
    )
    model.emissionprob_ = np.array([[float(x == y) for y in range(k)] for _, _, x in edges])
    return model, edges


@pytest.mark.parametrize("transitions", [mess3(0.05, 0.85), GOLDEN_MEAN, random_process(3, 4, 7)])
def test_probabilities_and_beliefs_of_a_hidden_process_are_those_of_hmmlearn(transitions):
    language = Hidden(transitions, length=12)
    model, edges = markov_of_edges(language)
    rng = random.Random(0)
    for _ in range(5):
        text = language.write(rng)
        observed = np.array([[language.names.index(symbol)] for symbol in text.split()])
        assert language.log_probability(text) == pytest.approx(model.score(observed), abs=1e-9)
        # The belief after the last symbol: the posterior of the last step, summed over steps that end in a state.
        posterior = model.predict_proba(observed)[-1]
        belief = [
            sum(p for p, (_, j, _) in zip(posterior, edges, strict=True) if j == state)
            for state in range(len(language.stationary))
        ]
        assert language.beliefs(text)[-1] == pytest.approx(belief, abs=1e-9)


def test_the_probability_of_a_text_is_the_sum_over_its_trees_by_nltk():
    nltk = pytest.importorskip("nltk")
    language = Trees(random_grammar(levels=3, width=2, symbols=2, rules=2, seed=3))
    pairs, leaves = language.grammar.pairs, language.grammar.leaves
    name = [nltk.Nonterminal(f"A{a}") for a in range(len(leaves))]
    rules = [
        nltk.ProbabilisticProduction(name[a], [name[b], name[c]], prob=pairs[a, b, c]) for a, b, c in np.argwhere(pairs)
    ] + [nltk.ProbabilisticProduction(name[a], [language.names[x]], prob=leaves[a, x]) for a, x in np.argwhere(leaves)]
    parser = nltk.InsideChartParser(nltk.PCFG(name[0], rules))
    rng = random.Random(1)
    texts = {text for text in (language.write(rng) for _ in range(40)) if len(text.split()) <= 7}
    n_trees = []
    for text in texts:
        trees = list(parser.parse(text.split()))
        n_trees.append(len(trees))
        assert language.log_probability(text) == pytest.approx(math.log(sum(tree.prob() for tree in trees)), abs=1e-9)
    assert max(n_trees) > 1, "some of these texts are ambiguous"
