"""Knobs of the corpora whose distribution is known exactly (`languages/`)."""

from collections.abc import Iterable, Iterator
from typing import Annotated, Literal

from pydantic import Field

from pellucid.config.base import Rule, Section

MOST_SYMBOLS = 4_096  # of a document: the truth of a hundred longer ones takes minutes
Fraction = Annotated[float, Field(gt=0, lt=1)]
Thoughts = Literal["none", "way", "filler", "shuffled", "optional"]
THOUGHTS = "its steps (way), dots, another's steps (shuffled), or steps in half of the cases, marked (optional)"


class DrawnSection(Section):
    """The keys that all corpora of a known language have in common."""

    size: int = Field(20_000, ge=2, description="number of documents, training and validation together")
    seed: int = Field(0, ge=0, description="the same seed writes the same corpus on every machine")
    validation_fraction: Fraction = Field(0.05, description="share of the documents held out")


def without_effect(section: Section, keys: Iterable[str], because: str) -> Iterator[Rule]:
    """A rule for each of the keys: it keeps its default, as it would have no effect."""
    for key in keys:
        is_changed = getattr(section, key) != type(section).model_fields[key].default
        yield is_changed, key, f"it has no effect, because {because}", "leave it out"


class FablesConfig(DrawnSection):
    """Short animal fables from a grammar, which tells the exact probability of every token."""

    type: Literal["fables"]
    world_size: int = Field(24, ge=2, description="number of animals; more animals, more facts to learn")


class InstructionsConfig(DrawnSection):
    """Instructions about fables, each with an answer drawn from its exact distribution."""

    type: Literal["instructions"]
    size: int = Field(8_000, ge=2, description="number of instructions, training and validation together")
    world_size: int = Field(24, ge=2, description="number of animals: that of the fables a run starts from")


class GrammarConfig(DrawnSection):
    """Texts of your own grammar, from a file of rules (docs/languages.md)."""

    type: Literal["grammar"]
    file: str = Field(min_length=1, description="a file of rules, seen from the current folder")


class ChainsConfig(DrawnSection):
    """Markov chains, each with a matrix of its own: whoever reads has to learn it in context."""

    type: Literal["chains"]
    states: int = Field(3, ge=2, le=52, description="states of each chain, which are its symbols")
    alpha: float = Field(
        1.0, ge=1e-6, le=1e6, description="parameter of the Dirichlet distribution of each row of the matrix"
    )
    length: int = Field(100, ge=2, le=MOST_SYMBOLS, description="symbols of a document")


class LookupConfig(DrawnSection):
    """Pairs of a key and its value, and then questions about them."""

    type: Literal["lookup"]
    keys: int = Field(26, ge=1, le=52, description="different keys")
    values: int = Field(10, ge=2, le=100, description="different values")
    pairs: int = Field(8, ge=1, description="the most pairs of a document; no key comes twice")
    fewest_pairs: int | None = Field(None, ge=1, description="the fewest pairs; left out: all documents have `pairs`")
    queries: int = Field(8, ge=1, le=MOST_SYMBOLS // 4, description="questions of a document")

    def _rules(self) -> Iterable[Rule]:
        too_few = f"{self.pairs} pairs need as many keys, not {self.keys}"
        yield self.pairs > self.keys, "pairs keys", too_few, "raise `keys`"
        too_many = f"{self.fewest_pairs} are more than `pairs`, {self.pairs}"
        yield (self.fewest_pairs or 1) > self.pairs, "fewest_pairs pairs", too_many, "give fewer, or leave it out"


class HopsConfig(DrawnSection):
    """Arrows from name to name, and then questions that follow several of them."""

    type: Literal["hops"]
    names: int = Field(8, ge=2, le=52, description="names, each with an arrow to another or to itself")
    most_hops: int = Field(4, ge=1, le=9, description="the most arrows that a question follows")
    queries: int = Field(8, ge=1, le=MOST_SYMBOLS // 4, description="questions of a document")
    thoughts: Thoughts = Field("none", description=f"before an answer: {THOUGHTS}")


class BracketsConfig(DrawnSection):
    """Balanced brackets of several kinds."""

    type: Literal["brackets"]
    kinds: int = Field(2, ge=1, le=4, description="kinds of brackets")
    depth: int = Field(8, ge=1, le=MOST_SYMBOLS // 2, description="the most brackets that are open at a time")
    length: int = Field(64, ge=2, le=MOST_SYMBOLS, multiple_of=2, description="brackets of a document, an even number")


class SumsConfig(DrawnSection):
    """Sums of two numbers, in digits or modulo a number. A share of all pairs of numbers is held out."""

    type: Literal["sums"]
    digits: int = Field(2, ge=1, le=3, description="digits of each number")
    order: Literal["forwards", "backwards"] = Field("forwards", description="backwards: the last digit comes first")
    modulus: int | None = Field(None, ge=2, le=500, description="numbers below this one, added modulo it, not digits")
    thoughts: Literal[Thoughts, "tool"] = Field("none", description=f"before a sum: {THOUGHTS}; or a tool (tool)")
    validation_fraction: Fraction = Field(0.3, description="share of all pairs of numbers that is held out")

    def _rules(self) -> Iterable[Rule]:
        if self.modulus is not None:
            because = "the numbers of `modulus` are one symbol each"
            yield from without_effect(self, ("digits", "order", "thoughts"), because)


class HiddenConfig(DrawnSection):
    """Symbols of a hidden Markov model."""

    type: Literal["hidden"]
    process: Literal["mess3", "golden_mean", "random"] = Field("mess3", description="its transitions")
    move: float = Field(0.05, gt=0, lt=0.5, description="mess3: probability to move to each of the two other states")
    own: float = Field(0.85, gt=0, lt=1, description="mess3: probability that a state writes its own symbol")
    states: int = Field(4, ge=2, le=20, description="hidden states of a random process")
    symbols: int = Field(3, ge=2, le=52, description="symbols of a random process")
    process_seed: int = Field(0, ge=0, description="seed of the transitions of a random process")
    length: int = Field(64, ge=1, le=MOST_SYMBOLS, description="symbols of a document")

    def _rules(self) -> Iterable[Rule]:
        keys_of = {"mess3": ("move", "own"), "random": ("states", "symbols", "process_seed")}
        for process, keys in keys_of.items():
            if process != self.process:
                yield from without_effect(self, keys, f"the `process` is {self.process}")


class TreesConfig(DrawnSection):
    """Texts of a random context-free grammar, most of which have several trees."""

    type: Literal["trees"]
    levels: int = Field(5, ge=1, le=7, description="levels of constituents: at most 2 ** levels symbols in a document")
    width: int = Field(3, ge=1, le=10, description="different constituents on each level below the top")
    rules: int = Field(2, ge=1, le=10, description="rules of each constituent")
    symbols: int = Field(4, ge=2, le=52, description="different symbols")
    grammar_seed: int = Field(0, ge=0, description="seed of the grammar")


LanguageOfSymbolsConfig = (
    ChainsConfig | LookupConfig | HopsConfig | BracketsConfig | SumsConfig | HiddenConfig | TreesConfig
)
LanguageConfig = FablesConfig | GrammarConfig | LanguageOfSymbolsConfig
