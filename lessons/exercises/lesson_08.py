"""Lesson 8: memory in a state. Write what is missing, then run `pellucid learn 8`.

The last letters of a name are the axes: T positions, B texts read side by side, D numbers per word, H numbers in a
state, K numbers per key, F features per key, V numbers per value. At the end of this file stand the measurements and
the little language of the lesson, which call your functions.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

import numpy as np
import torch

import pellucid
from lesson_01 import Tensor, backward, log_softmax, tanh
from pellucid.config.model import DecoderConfig, RecurrentConfig
from pellucid.corpora.drawn import Drawn
from pellucid.languages.fables import Fables
from pellucid.model.build import build_model

Array = np.ndarray

# ---- A state that is carried along ----


def rnn_states(x_TBD: Array | Tensor, W_HH: Tensor, U_HD: Tensor, b_H: Tensor) -> list[Tensor]:
    """The states h_0, h_1, … of a recurrent network that reads x[0], x[1], …: T tensors (B, H) on the tape.

    h_t is the state right after x[t] has been read: tanh(W h_{t-1} + U x_t + b). Before the first word the state is
    zero. Each row of a state is one text's, so a product with W is `h @ W_HH.T`. T is x_TBD.shape[0].
    """
    # solution:
    h_BH = Tensor(np.zeros((x_TBD.shape[1], W_HH.shape[0])))
    states = []
    for t in range(x_TBD.shape[0]):
        h_BH = tanh(h_BH @ W_HH.T + x_TBD[t] @ U_HD.T + b_H)
        states.append(h_BH)
    return states
    # end


# ---- Back through time ----


def jacobian_through_time(W_HH: Array, h_nH: Array) -> Array:
    """The Jacobian ∂h_t/∂h_s (H, H) of an RNN for one text, from the states on the way.

    The rows of h_nH are h_{s+1}, …, h_t, plain numbers; without rows it is the identity. Entry [i, j] says how much
    number i of h_t changes with number j of h_s.
    """
    # solution:
    jacobian_HH = np.eye(len(W_HH))
    for h_H in h_nH:
        jacobian_HH = (1 - h_H**2)[:, None] * W_HH @ jacobian_HH
    return jacobian_HH
    # end


def truncated_states(x_TBD: Array | Tensor, W_HH: Tensor, U_HD: Tensor, b_H: Tensor, k: int) -> list[Tensor]:
    """`rnn_states`, but the walk back stops at every k-th step: the words k, 2k, … each begin a new piece.

    The states are the same numbers as without cuts. A new `Tensor` of a plain array has no parents.
    """
    # solution:
    h_BH = Tensor(np.zeros((x_TBD.shape[1], W_HH.shape[0])))
    states = []
    for t in range(x_TBD.shape[0]):
        if t % k == 0:
            h_BH = Tensor(h_BH.value)
        h_BH = tanh(h_BH @ W_HH.T + x_TBD[t] @ U_HD.T + b_H)
        states.append(h_BH)
    return states
    # end


# ---- Gates ----


def sigmoid(x: Tensor) -> Tensor:
    """1 / (1 + e^-x), between 0 and 1."""
    return (tanh(x * 0.5) + 1.0) * 0.5


def lstm_step(x_BD: Array, h_BH: Tensor, c_BH: Tensor, W_x: Tensor, W_h: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """One step of an LSTM on the tape: the new h and the new cells c, as a pair.

    The four parts of `sums` have the shape (B, H). The first, second and fourth are for the gates i (let in), f (keep)
    and o (show); the third is for the proposal, which is between -1 and 1.
    """
    H = h_BH.shape[1]
    sums = x_BD @ W_x.T + h_BH @ W_h.T + b
    for_i, for_f, for_proposal, for_o = (sums[:, n * H : (n + 1) * H] for n in range(4))
    # solution:
    c_BH = sigmoid(for_f) * c_BH + sigmoid(for_i) * tanh(for_proposal)
    return sigmoid(for_o) * tanh(c_BH), c_BH
    # end


# ---- Kernels, and attention without a softmax ----


def square_features(x: Array) -> Array:
    """Features φ(x) of the kernel (x·y)²: one list of numbers such that φ(x)·φ(y) = (x·y)² for all x and y.

    x may have any length. φ sees x alone, or y alone, never both.
    """
    # solution:
    return np.outer(x, x).ravel()
    # end


def positive_features(x: Array) -> Array:
    """φ(x) = elu(x) + 1, number by number: x + 1 above 0, e^x below. All features are positive."""
    return np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))


def attention_by_features(q_TF: Array, k_TF: Array, v_TV: Array) -> Array:
    """Attention (T, V) whose weights are products of features instead of a softmax.

    The rows of q and k are φ(q_t) and φ(k_t) already; they may hold negative numbers. Position t sees the positions up
    to t, and the weights that it gives sum to 1.
    """
    # solution:
    products_TT = np.tril(q_TF @ k_TF.T)
    return products_TT @ v_TV / products_TT.sum(axis=1, keepdims=True)
    # end


def linear_attention_recurrence(
    q_TF: Array, k_TF: Array, v_TV: Array, S_FV: Array, d_F: Array
) -> tuple[Array, Array, Array]:
    """The outputs of `attention_by_features`, read word by word, and the state after the last word: y (T, V), S and d.

    There is at least one word. S_FV and d_F are the state before the first: zeros at the beginning of a text, or what
    an earlier call has returned. Its size does not depend on the number of words. Leave the given arrays as they are.
    """
    # solution:
    outputs = []
    for q_F, k_F, v_V in zip(q_TF, k_TF, v_TV, strict=True):
        S_FV = S_FV + np.outer(k_F, v_V)
        d_F = d_F + k_F
        outputs.append(q_F @ S_FV / (q_F @ d_F))
    return np.array(outputs), S_FV, d_F
    # end


# ---- Measurements ----


def gradient_by_distance(model: Any, tokens_BT: torch.Tensor) -> Array:
    """How much the loss at the last word changes with the embedding of the word 0, 1, 2, … places before it.

    The norm of the gradient, averaged over texts: for any language model of Pellucid. The last token is the target.
    """
    kept = []

    def embed(tokens: torch.Tensor) -> torch.Tensor:
        x_BTD = model.embeddings.__class__.embed(model.embeddings, tokens)
        x_BTD.retain_grad()
        kept.append(x_BTD)
        return x_BTD

    model.eval()
    model.embeddings.embed = embed
    try:
        logits_BTV = model(tokens_BT[:, :-1])
        torch.nn.functional.cross_entropy(logits_BTV[:, -1], tokens_BT[:, -1], reduction="sum").backward()
    finally:
        del model.embeddings.embed
    return kept[0].grad.norm(dim=-1).mean(dim=0).flip(0).numpy()


def fables_as_tokens(n_texts: int, n_tokens: int) -> torch.Tensor:
    """The beginnings of held-out fables, in the demo's tokens."""
    tokenizer = pellucid.load("demo").tokenizer
    corpus = Drawn(Fables(24), size=2200, seed=0, validation_fraction=200 / 2200)
    encoded = (tokenizer.encode(text) for text in corpus.documents("validation"))
    return torch.tensor(list(islice((ids[:n_tokens] for ids in encoded if len(ids) >= n_tokens), n_texts)))


def five_models() -> dict[str, Any]:
    """Four models with random weights, of width 128, and the demo."""
    demo = pellucid.load("demo")
    shape = {"context_length": 192, "d_model": 128}
    configs = {
        "RNN, g = 1": RecurrentConfig(type="rnn", **shape),
        "RNN, g = 0.8": RecurrentConfig(type="rnn", **shape),
        "LSTM": RecurrentConfig(type="lstm", **shape),
        "decoder": DecoderConfig(type="decoder", n_layers=2, n_heads=4, **shape),
    }
    models: dict[str, Any] = {}
    for name, config in configs.items():
        torch.manual_seed(6)
        models[name] = build_model(config, demo.tokenizer.vocab_size)
    with torch.no_grad():
        models["RNN, g = 0.8"].layers.weight_hh_l0.mul_(0.8)
    return {**models, "demo": demo.model}


# ---- A language in which a name comes back ----

NAMES, FILLERS = ("fox", "hen", "owl", "crow"), ("um", "er", "well")
WORDS = (*NAMES, *FILLERS, "says")


def rules_of_echo(d: int) -> str:
    """The language in the notation of the fables: a name, d fillers, `says`, and in 27 of 30 texts the name again."""
    fillers = " ".join(["[filler]"] * d)
    rules = {
        "fable": [f"1 {name} {fillers} says [{name}_says]" for name in NAMES],
        **{f"{name}_says": [f"{27 if name == other else 1} {other}" for other in NAMES] for name in NAMES},
        "filler": [f"1 {filler}" for filler in FILLERS],
    }
    return "\n\n".join("\n    ".join([title, *options]) for title, options in rules.items())


def write_echoes(d: int, n_texts: int, random: np.random.Generator) -> Array:
    """Texts drawn from that language, as rows of ids (n_texts, d + 3)."""
    hero = random.integers(4, size=n_texts)
    other = (hero + random.integers(1, 4, size=n_texts)) % 4
    fillers = random.integers(4, 7, size=(n_texts, d))
    last = np.where(random.random(n_texts) < 0.9, hero, other)
    return np.column_stack([hero, fillers, np.full(n_texts, 7), last])


def new_reader(H: int, gain: float, seed: int) -> dict[str, Tensor]:
    """A recurrent network over one-hot words. W is `gain` times an orthogonal matrix."""
    random = np.random.default_rng(seed)
    return {
        "W": Tensor(gain * np.linalg.qr(random.normal(size=(H, H)))[0]),
        "U": Tensor(random.normal(size=(H, len(WORDS)))),
        "b": Tensor(np.zeros(H)),
        "V": Tensor(random.normal(size=(4, H)) * 0.1),
    }


def new_lstm_reader(H: int, bias: float, seed: int) -> dict[str, Tensor]:
    """An LSTM over one-hot words, whose forget gates begin with `bias`."""
    random = np.random.default_rng(seed)
    b = np.zeros(4 * H)
    b[H : 2 * H] = bias
    return {
        "W_x": Tensor(random.normal(size=(4 * H, len(WORDS))) * 0.5),
        "W_h": Tensor(random.normal(size=(4 * H, H)) * 0.3 / np.sqrt(H)),
        "b": Tensor(b),
        "V": Tensor(random.normal(size=(4, H)) * 0.1),
    }


def log_p_at_the_end(reader: Mapping[str, Tensor], texts: Array, k: int | None = None) -> Tensor:
    """ln p (B, 4) of each name as the last word; the walk back is cut after pieces of k words, if k is given."""
    x_TBD = np.eye(len(WORDS))[texts[:, :-1].T]
    if "W_x" in reader:
        h_BH = c_BH = Tensor(np.zeros((len(texts), reader["V"].shape[1])))
        for x_BD in x_TBD:
            h_BH, c_BH = lstm_step(x_BD, h_BH, c_BH, reader["W_x"], reader["W_h"], reader["b"])
        return log_softmax(h_BH @ reader["V"].T)
    parameters = reader["W"], reader["U"], reader["b"]
    states = truncated_states(x_TBD, *parameters, k) if k else rnn_states(x_TBD, *parameters)
    return log_softmax(states[-1] @ reader["V"].T)


def loss_at_the_end(reader: Mapping[str, Tensor], d: int) -> float:
    """The expected loss at the last word: 500 beginnings, and the true probabilities of what follows."""
    texts = write_echoes(d, 500, np.random.default_rng(1))
    p = np.where(np.arange(4) == texts[:, :1], 0.9, 0.1 / 3)
    return float(-(p * log_p_at_the_end(reader, texts).value).sum(axis=1).mean())


def train_reader(
    reader: Mapping[str, Tensor], d: int, n_steps: int, k: int | None = None, rate: float = 0.02, seed: int = 0
) -> None:
    """Adam on the loss at the last word, with fresh batches of 64 texts. The rate falls to 0 along a line."""
    random = np.random.default_rng(seed)
    moments = {name: (np.zeros(each.shape), np.zeros(each.shape)) for name, each in reader.items()}
    for step in range(1, n_steps + 1):
        texts = write_echoes(d, 64, random)
        backward(-log_p_at_the_end(reader, texts, k)[np.arange(64), texts[:, -1]].mean())
        for name, parameter in reader.items():
            m, v = moments[name]
            m = 0.9 * m + 0.1 * parameter.gradient
            v = 0.99 * v + 0.01 * parameter.gradient**2
            moments[name] = m, v
            move = m / (1 - 0.9**step) / (np.sqrt(v / (1 - 0.99**step)) + 1e-8)
            parameter.value = parameter.value - rate * (1 - (step - 1) / n_steps) * move
