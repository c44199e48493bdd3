"""A grammar described for its author: how many texts it has, their entropy, and how they look."""

import math
import random
import re
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

from pellucid.languages.grammar.own import OwnGrammar
from pellucid.tables import table

FEW_TEXTS = 50_000  # so many can all be listed in some seconds
MOST_LISTED_CHARACTERS = 10_000_000  # of all these texts
N_DRAWN = 2_000
MOST_DRAWN_CHARACTERS = 500_000
MOST_SHOWN = 500  # characters of a text


class Portrait(NamedTuple):
    """A grammar's figures. is_complete: all texts were listed, and not just some drawn.

    n_tokens: of the text with the most, where each word and each mark is a token.
    """

    n_texts: int
    entropy_nats: float
    is_complete: bool
    n_seen: int
    likeliest: tuple[str, float]
    least_likely: tuple[str, float]
    samples: list[str]
    unused: list[str]
    longest: str
    n_words: int
    n_tokens: int

    def command(self, file: str) -> str:
        """The command that trains on these rules, with a token for each word and room for the longest text."""
        vocab_size, context_length = 257 + 2 * self.n_words, 8 * math.ceil((self.n_tokens + 2) / 8)
        name = re.sub(r"[^A-Za-z0-9-]+", "_", Path(file).stem).strip("_-") or "own"
        values = f"tokenizer.vocab_size={vocab_size} model.context_length={context_length}"
        return f"pellucid train languages/weather {quoted(f'corpus.file={file}')} name={name} {values}"

    def table(self, where: str) -> str:
        """The figures to read."""
        seen = "of all" if self.is_complete else f"of {self.n_seen:,} drawn"
        words_of_longest = len(self.longest.split())
        facts = {
            "texts": f"{self.n_texts:,}" if self.n_texts < 10**9 else f"{Decimal(self.n_texts):.1e}",
            "entropy": f"{self.entropy_nats:.4f} nats per text: the floor of the loss",
            "most likely": f"{_shown(*self.likeliest)} ({seen})",
            "least likely": f"{_shown(*self.least_likely)} ({seen})",
            "longest": f"{len(self.longest)} characters, {words_of_longest} words ({seen})",
            "words": f"{self.n_words:,} different ({seen})",
        }
        samples = [("  ", repr(_shortened(text))) for text in self.samples]
        unused = [f"{where}:{rule}" for rule in self.unused]
        return table((), facts.items(), {1: "bold"}, below=["", table((), samples), "", *unused])


def portrait(grammar: OwnGrammar, seed: int = 0, n_samples: int = 10) -> Portrait:
    """List all texts of a small grammar, or draw some of a large one, and look at them."""
    rng = random.Random(seed)
    is_complete = grammar.n_texts <= min(FEW_TEXTS, MOST_LISTED_CHARACTERS // grammar.longest)
    texts = all_texts(grammar) if is_complete else drawn_texts(grammar, rng)
    by_probability = sorted(texts.items(), key=lambda item: item[1])
    return Portrait(
        n_texts=grammar.n_texts,
        entropy_nats=grammar.entropy_nats,
        is_complete=is_complete,
        n_seen=len(texts),
        likeliest=by_probability[-1],
        least_likely=by_probability[0],
        samples=[grammar.write(rng) for _ in range(n_samples)],
        unused=[f"{rule.line}: the rule {rule.name!r} is never used" for rule in grammar.unused],
        longest=max(texts, key=len),
        n_tokens=max(len(re.findall(r"\w+|[^\w\s]|\s{2,}|\n", text)) for text in texts),
        n_words=len({word for text in texts for word in text.split()}),
    )


def quoted(argument: str) -> str:
    """An argument as a shell of any system takes it."""
    return argument if re.fullmatch(r"[\w./\\:=-]+", argument) else f'"{argument}"'


def drawn_texts(grammar: OwnGrammar, rng: random.Random) -> dict[str, float]:
    """Some texts, each with its probability."""
    texts: dict[str, float] = {}
    n_characters = 0
    for _ in range(N_DRAWN):
        text = grammar.write(rng)
        texts[text] = math.exp(grammar.log_probability(text))
        n_characters += len(text)
        if n_characters > MOST_DRAWN_CHARACTERS:
            break
    return texts


def _shown(text: str, probability: float) -> str:
    return f"{probability:.2g}  {_shortened(text)!r}" if probability else f"< 1e-307  {_shortened(text)!r}"


def _shortened(text: str) -> str:
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]} …"


def all_texts(grammar: OwnGrammar) -> dict[str, float]:
    """Every text with its probability."""
    texts: dict[str, float] = {}
    ways = [("", grammar.grammar.begin(), 1.0)]
    while ways:
        written, fork, p = ways.pop()
        for index in fork.allowed():
            text, after = fork.write(index)
            share = p * fork.probability(index)
            if after is None:
                texts[written + text] = share
            else:
                ways.append((written + text, after, share))
    return texts
