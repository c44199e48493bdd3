"""A small member of each language of symbols, all of whose documents can be listed."""

from pellucid.languages.brackets import Brackets
from pellucid.languages.chains import Chains
from pellucid.languages.hidden import GOLDEN_MEAN, Hidden, mess3, random_process
from pellucid.languages.hops import Hops
from pellucid.languages.lookup import Lookup
from pellucid.languages.sums import Sums
from pellucid.languages.symbols import END, SymbolLanguage, text_of
from pellucid.languages.trees import Trees, random_grammar

SMALL = {
    "chains": Chains(states=2, alpha=0.5, length=6),
    "lookup": Lookup(keys=3, values=2, pairs=2, queries=2),
    "lookup of up to two": Lookup(keys=3, values=2, pairs=2, queries=2, fewest_pairs=1),
    "hops": Hops(names=3, hops=2, queries=1),
    **{f"hops, thoughts: {kind}": Hops(3, 3, 1, kind) for kind in ("way", "filler", "shuffled", "optional")},
    "brackets": Brackets(kinds=2, depth=3, length=8),
    "sums": Sums(digits=1, order="forwards", modulus=None),
    "sums backwards": Sums(digits=1, order="backwards", modulus=None),
    **{f"sums, thoughts: {kind}": Sums(1, "forwards", None, kind) for kind in ("way", "filler", "shuffled", "tool")},
    "sums, thoughts: optional": Sums(1, "backwards", None, "optional"),
    "sums modulo 12": Sums(digits=1, order="forwards", modulus=12),
    "mess3": Hidden(mess3(0.05, 0.85), length=5),
    "golden mean": Hidden(GOLDEN_MEAN, length=7),
    "hidden": Hidden(random_process(3, 2, 1), length=6),
    "trees": Trees(random_grammar(levels=3, width=2, symbols=2, rules=2, seed=1)),
}


def all_documents(language: SymbolLanguage) -> dict[str, float]:
    """Every document with its probability, by walking all ways."""
    documents = {}
    ways = [([], language.begin(), 1.0)]
    while ways:
        symbols, state, p = ways.pop()
        for symbol, share in language.following(state).items():
            if symbol == END:
                documents[text_of(symbols)] = p * share
            else:
                ways.append(([*symbols, symbol], language.after(state, symbol), p * share))
    return documents
