"""RNN, LSTM and GRU for one sequence, token by token, layer by layer (equations 35 to 37).

`weights` maps the names of the model's parameters to float64 arrays. PyTorch puts the matrices of a layer's gates on
top of each other, and gives each gate two biases, one beside each of its matrices.
"""

import numpy as np

from reference.attention import linear
from reference.norms import layer_norm


def recurrent(tokens, config, weights):
    """Logits (T, V) of one sequence of token ids, for any RecurrentConfig."""
    step, n_gates = {"rnn": (rnn, 1), "lstm": (lstm, 4), "gru": (gru, 3)}[config.type]
    states = [(np.zeros(config.d_model), np.zeros(config.d_model)) for _ in range(config.n_layers)]
    outputs = []
    for token in tokens:
        x = weights["embeddings.embedding_VD"][token]
        for layer in range(config.n_layers):
            W, U, b, b_U = (np.split(weights[name.format(layer)], n_gates) for name in NAMES)
            from_x = [product(W[gate], x) + b[gate] for gate in range(n_gates)]
            from_h = [product(U[gate], states[layer][0]) + b_U[gate] for gate in range(n_gates)]
            states[layer] = step(from_x, from_h, *states[layer])
            x = states[layer][0]
        outputs.append(x)
    gain = weights["final_norm.weight"]
    unembedding = weights["embeddings.embedding_VD" if config.tied_embeddings else "embeddings.unembedding_VD"]
    return linear(layer_norm(np.array(outputs), gain, np.zeros(len(gain))), unembedding, np.zeros(len(unembedding)))


NAMES = ["layers.weight_ih_l{}", "layers.weight_hh_l{}", "layers.bias_ih_l{}", "layers.bias_hh_l{}"]


def rnn(from_x, from_h, h, c):
    """Elman 1990: the new h from the token and the old h."""
    return np.tanh(from_x[0] + from_h[0]), c


def lstm(from_x, from_h, h, c):
    """Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al. 2000."""
    input_gate, forget_gate, _, output_gate = (sigmoid(x + y) for x, y in zip(from_x, from_h, strict=True))
    candidate = np.tanh(from_x[2] + from_h[2])
    c = forget_gate * c + input_gate * candidate
    return output_gate * np.tanh(c), c


def gru(from_x, from_h, h, c):
    """Cho et al. 2014, but as cuDNN and PyTorch have it: the reset gate comes after the product with h, not before."""
    reset_gate, update_gate = (sigmoid(from_x[gate] + from_h[gate]) for gate in (0, 1))
    candidate = np.tanh(from_x[2] + reset_gate * from_h[2])
    return (1 - update_gate) * candidate + update_gate * h, c


def product(W, x):
    return linear(x[None], W, np.zeros(len(W)))[0]


def sigmoid(x):
    return 1 / (1 + np.exp(-x))
