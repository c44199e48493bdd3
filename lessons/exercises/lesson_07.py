"""Lesson 7: counting, and a first network. Write what is missing, then run `pellucid learn 7`.

At the end of this file stand the little language of the lesson and the training loop, which call your functions.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

import numpy as np

from lesson_01 import Tensor, backward, concatenate, exp, log, log_softmax, tanh  # noqa: F401 - for you to use
from pellucid.languages.fables import Fables
from pellucid.languages.grammar.grammar import Fork
from pellucid.languages.grammar.notation import read_rules, table

Array = np.ndarray

END = 0  # the id that stands after each text, and so before the next one

# ---- Counting ----


def count_pairs(documents: Sequence[Sequence[int]], n_words: int) -> Array:
    """How often word b directly follows word a: an array (n_words, n_words), at [a, b].

    A document is a list of ids, which stays as it is. An END stands before its first word and after its last one.
    """
    # solution:
    counts = np.zeros((n_words, n_words))
    for document in documents:
        words = [END, *document, END]
        np.add.at(counts, (words[:-1], words[1:]), 1)
    return counts
    # end


def probabilities_of(counts: Array, alpha: float) -> Array:
    """p(b | a) at [a, b], from the counts of pairs at [a, b], as if each pair had come alpha times more."""
    # solution:
    raised = counts + alpha
    return raised / raised.sum(axis=1, keepdims=True)
    # end


def floor_of_pairs(expected: Array) -> float:
    """The least loss, in nats per word, of a model that sees only the last word.

    `expected[a, b]` is how often b follows a in a text, on average. Many entries are 0, and whole rows may be.
    """
    # solution:
    before = np.broadcast_to(expected.sum(axis=1, keepdims=True), expected.shape)
    occurs = expected > 0
    nats = expected[occurs] * np.log(before[occurs] / expected[occurs])
    return nats.sum() / expected.sum()
    # end


# ---- Learning by gradient ----


def stable_log_softmax(z: Array) -> Array:
    """ln softmax over the last axis, for logits of any size: no overflow, no ln 0."""
    # solution:
    shifted = z - z.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    # end


def gradient_of_cross_entropy(z: Array, targets: Array) -> Array:
    """The derivative of the mean of -ln softmax(z[i])[targets[i]] over the rows i, by each logit.

    z is (N, V), logits of any size; targets holds N ids.
    """
    # solution:
    n_rows = len(targets)
    gradient = np.exp(stable_log_softmax(z))
    gradient[np.arange(n_rows), targets] -= 1
    return gradient / n_rows
    # end


# ---- The network ----


def windows(documents: Sequence[Sequence[int]], n_ctx: int) -> tuple[Array, Array]:
    """For each word, and for the END of each document: the n_ctx words before it (N, n_ctx), and itself (N).

    The oldest word comes first. Before the first word of a document stand n_ctx ENDs. Both are arrays of integers, as
    `train` needs them.
    """
    # solution:
    inputs, targets = [], []
    for document in documents:
        words = [END] * n_ctx + [*document, END]
        for i in range(n_ctx, len(words)):
            inputs.append(words[i - n_ctx : i])
            targets.append(words[i])
    return np.array(inputs), np.array(targets)
    # end


def mlp_loss(parameters: Mapping[str, Tensor], inputs: Array, targets: Array) -> Tensor:
    """The mean loss of the network over N windows, on the tape.

    Row w of C (V, d) is the embedding of word w. The n_ctx embeddings of a window stand side by side, the oldest first:
    x. The hidden layer is tanh(x W_1 + b_1), with W_1 (n_ctx d, F); W_2 (F, d) leads back to d numbers, and their
    products with the rows of C are the logits. inputs is (N, n_ctx), targets holds N ids.
    """
    # solution:
    C = parameters["C"]
    x = concatenate([C[inputs[:, place]] for place in range(inputs.shape[1])])
    hidden = tanh(x @ parameters["W_1"] + parameters["b_1"])
    log_p = log_softmax(hidden @ parameters["W_2"] @ C.T)
    return -log_p[np.arange(len(targets)), targets].mean()
    # end


# ---- Training, which calls your functions ----


def new_parameters(n_words: int, n_ctx: int, d: int, n_hidden: int, seed: int = 0) -> dict[str, Tensor]:
    """Random weights that make sums of about 1 everywhere, as in the product's MLP."""
    random = np.random.default_rng(seed)
    return {
        "C": Tensor(random.normal(0, d**-0.5, (n_words, d))),
        "W_1": Tensor(random.normal(0, n_ctx**-0.5, (n_ctx * d, n_hidden))),
        "b_1": Tensor(np.zeros(n_hidden)),
        "W_2": Tensor(random.normal(0, n_hidden**-0.5, (n_hidden, d))),
    }


def train(
    parameters: Mapping[str, Tensor], inputs: Array, targets: Array, n_steps: int, rate: float = 1.0, seed: int = 0
) -> None:
    """Plain gradient descent on batches of 128 windows, drawn at random. The rate falls to 0 along a line."""
    random = np.random.default_rng(seed)
    for step in range(n_steps):
        batch = random.integers(0, len(targets), 128)
        backward(mlp_loss(parameters, inputs[batch], targets[batch]))
        for parameter in parameters.values():
            parameter.value = parameter.value - rate * (1 - step / n_steps) * parameter.gradient


def fit_table(counts: Array, rank: int, kind: str = "free", n_steps: int = 3000, seed: int = 0) -> Array:
    """ln p(b | a) of a table of logits of low rank, fitted to counts of pairs by gradient descent.

    Column w of C (rank, V) is the embedding of word w. The logits after w are D C_w with kind "free", C^T C_w with
    "tied", and C^T M C_w with "tied with a matrix".
    """
    random = np.random.default_rng(seed)
    C, D_T = random.normal(0, 0.5, (2, rank, len(counts)))
    M = np.eye(rank)
    share = counts / counts.sum()
    for _ in range(n_steps):
        read, out = M @ C, D_T if kind == "free" else C
        p = np.exp(stable_log_softmax(read.T @ out))
        by_z = share.sum(axis=1, keepdims=True) * p - share  # p - 1 at the word that came, summed over all pairs
        by_read, by_out = out @ by_z.T, read @ by_z
        by_C, by_M = M.T @ by_read, by_read @ C.T
        if kind == "free":
            C, D_T = C - by_C, D_T - by_out
        else:
            C = C - by_C - by_out
            M = M - by_M if kind == "tied with a matrix" else M
    return stable_log_softmax((M @ C).T @ (D_T if kind == "free" else C))


# ---- Languages so small that all their texts can be listed ----


class Language:
    """A grammar in the notation of the fables, whose words are separated by spaces. Word 0 is the END."""

    def __init__(self, rules: str, **tables: Sequence[tuple[float, str, Mapping[str, str]]]) -> None:
        read = {**read_rules(rules), **{name: table(rows) for name, rows in tables.items()}}
        self.fables = Fables(0, read)
        _, _, first = self.fables.grammar.read("")
        assert first is not None
        texts = dict(_texts(first, "", 1.0))
        self.words = ["END", *sorted({word for text in texts for word in text.split()})]
        self._surprises = cache(self._surprises)  # type: ignore[method-assign]
        self._id = {word: i for i, word in enumerate(self.words)}
        self.documents = {tuple(self.ids(text)): p for text, p in texts.items()}  # with their probabilities
        self.mean_length = sum(p * (len(document) + 1) for document, p in self.documents.items())  # with the END

    def ids(self, text: str) -> list[int]:
        return [self._id[word] for word in text.split()]

    def write(self, n_texts: int, seed: int) -> list[list[int]]:
        """Documents drawn at random."""
        random = np.random.default_rng(seed)
        return [self.ids(self.fables.grammar.derive(random.random)) for _ in range(n_texts)]

    def expected_pairs(self) -> Array:
        """How often each pair stands in a text, on average: exactly, from the list of all texts."""
        expected = np.zeros((len(self.words), len(self.words)))
        for document, p in self.documents.items():
            words = [END, *document, END]
            np.add.at(expected, (words[:-1], words[1:]), p)
        return expected

    def floor(self, n_seen: int | None = None) -> float:
        """The least loss of a model that sees the last n_seen words, or all of them, in nats per word."""
        if n_seen is None:
            return self.fables.entropy_nats / self.mean_length
        return sum(p * nats for _, p, nats in self._surprises(n_seen)) / self.mean_length

    def nats_after(self, word: str, n_seen: int | None = None) -> float:
        """What such a model pays for what follows this word, on average."""
        longest = max(map(len, self.documents)) + 1
        after = [each for each in self._surprises(n_seen or longest) if each[0][-2] == self._id[word]]
        return sum(p * nats for _, p, nats in after) / sum(p for _, p, _ in after)

    def _surprises(self, n_seen: int) -> list[tuple[tuple[int, ...], float, float]]:
        """Each n_seen words with the next one: how often they come in a text, and -ln p(next | those before)."""
        number: defaultdict[tuple[int, ...], float] = defaultdict(float)
        before: defaultdict[tuple[int, ...], float] = defaultdict(float)
        for document, p in self.documents.items():
            words = (*[END] * max(n_seen, 1), *document, END)
            for i in range(max(n_seen, 1), len(words)):
                number[words[i - n_seen : i + 1]] += p
                before[words[i - n_seen : i]] += p
        return [(words, p, math.log(before[words[:-1]] / p)) for words, p in number.items()]


def _texts(fork: Fork, written: str, p: float) -> Iterator[tuple[str, float]]:
    """All texts that go on from a choice, with their probabilities."""
    for i in fork.allowed():
        text, following = fork.write(i)
        if following is None:
            yield written + text, p * fork.probability(i)
        else:
            yield from _texts(following, written + text, p * fork.probability(i))


MEETINGS = """
fable
    1 a [look] [hero:animal] met a [look] [other:animal!hero] . the {other} [said] [word] , and the {hero}
        {hero.moved} away .

look
    4 sly
    3 shy
    2 old
    1 proud

said
    2 said
    1 cried

word
    4 yes
    3 no
    2 welcome
"""
MOVED = {
    "fox": "ran", "crow": "flew", "frog": "swam",
    "hare": "ran", "hen": "flew", "carp": "swam",
    "wolf": "ran", "duck": "flew", "toad": "swam",
}  # fmt: skip


def meetings() -> Language:
    """The little language of this lesson. The i-th animal has the weight 1/i, as in the fables."""
    animals = [(1 / i, name, {"name": name, "moved": moved}) for i, (name, moved) in enumerate(MOVED.items(), 1)]
    return Language(MEETINGS, animal=animals)
