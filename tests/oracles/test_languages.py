"""Languages of symbols against programs of their fields: hmmlearn for hidden states, nltk and PhysicsLM4 for trees."""

import math
import os
import random
import sys
import warnings
from types import SimpleNamespace

import numpy as np
import pytest

from pellucid.languages.hidden import GOLDEN_MEAN, Hidden, mess3, random_process
from pellucid.languages.symbols import END
from pellucid.languages.trees import RandomGrammar, Trees, random_grammar


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


def trees_of(config) -> Trees:
    """The grammar of PhysicsLM4's generator as ours: of three children, the first is followed by a pair of the others.

    A level of theirs is two of ours. Every rule of a constituent is as likely as the others.
    """
    depth, sizes = config.depth, config.sizes
    index = {place: a for a, place in enumerate((d, i) for d in range(depth + 1) for i in range(sizes[d]))}
    level_A = [2 * (depth - d) for d, _ in index]
    rules = []  # (A, B, C, p)
    for (d, i), a in list(index.items()):
        children = config.all[d][i].children if d < depth else []
        for child in children:
            first, *others = (index[d + 1, c] for c in child)
            if len(others) == 2:
                level_A.append(level_A[a] - 1)
                rules.append((len(level_A) - 1, *others, 1.0))
                others = [len(level_A) - 1]
            rules.append((a, first, *others, 1 / len(children)))
    pairs, leaves = np.zeros((len(level_A),) * 3), np.zeros((len(level_A), sizes[depth]))
    for a, b, c, p in rules:
        pairs[a, b, c] += p
    for i in range(sizes[depth]):
        leaves[index[depth, i], i] = 1.0
    return Trees(RandomGrammar(pairs, leaves, tuple(level_A)))


@pytest.mark.parametrize("name", ["small", "cfg3b", "cfg3f"])
def test_the_next_symbol_of_a_tree_is_that_of_physics_lm4(name, monkeypatch):
    """PhysicsLM4's folder Lano-cfg (github.com/facebookresearch/PhysicsLM4) is where the variable LANO_CFG says."""
    folder = os.environ.get("LANO_CFG") or pytest.skip("LANO_CFG does not name a folder Lano-cfg of PhysicsLM4")
    monkeypatch.setitem(sys.modules, "xlsxwriter", SimpleNamespace(utility=SimpleNamespace(xl_col_to_name=str)))
    monkeypatch.syspath_prepend(folder)
    from data_cfg import CFG_Config

    if name == "small":
        random.seed(0)
        config = CFG_Config(depth=3, num_sym=4, len_min=2, len_max=3)
        config.build_graph()
    else:
        config = CFG_Config.from_graph(f"{folder}/configs/{name}.json")
    language = trees_of(config)
    for seed in range(20 if name == "small" else 1):
        ids = config.generate_onedata_pure(random.Random(seed))
        theirs, _ = config.solve_dp_prob_highprecision(ids, debug=False)
        state = language.begin()
        for symbol, row in zip([*(language.names[i - 1] for i in ids), None], np.array(theirs, float), strict=True):
            ours = language.following(state)
            assert [ours.get(each, 0.0) for each in (END, *language.names)] == pytest.approx(row, abs=1e-9)
            state = language.after(state, symbol) if symbol else state
