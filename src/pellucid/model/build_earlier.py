"""Builds what came before the decoder: the neural n-gram and the recurrent networks."""

import torch
import torch.nn.functional as F
from torch import nn
from typing_extensions import assert_never

from pellucid.config.model import MLPConfig, RecurrentConfig
from pellucid.model.build import build_embeddings
from pellucid.model.feed_forward import Activation
from pellucid.model.initialization import initialize_recurrent
from pellucid.model.mlp import MLP
from pellucid.model.norms import LayerNorm
from pellucid.model.recurrent import LSTM, Recurrent


def build_mlp(config: MLPConfig, vocab_size: int) -> MLP:
    activation: Activation
    match config.activation:
        case "tanh":
            activation = torch.tanh
        case "relu":
            activation = F.relu
        case _:
            assert_never(config.activation)
    return MLP(
        vocab_size=vocab_size,
        context_length=config.context_length,
        window=config.window,
        embeddings=build_embeddings(config, vocab_size),
        d_model=config.d_model,
        d_ff=config.d_ff or 4 * config.d_model,
        activation=activation,
    )


def build_recurrent(config: RecurrentConfig, vocab_size: int) -> Recurrent:
    model = Recurrent(
        vocab_size=vocab_size,
        context_length=config.context_length,
        embeddings=build_embeddings(config, vocab_size),
        layers=build_layers(config),
        final_norm=LayerNorm(config.d_model, bias=False),
        dropout=config.dropout,
    )
    initialize_recurrent(model)
    return model


def build_layers(config: RecurrentConfig) -> nn.RNN | nn.LSTM | nn.GRU:
    kinds: dict[str, type[nn.RNN | nn.LSTM | nn.GRU]] = {"rnn": nn.RNN, "lstm": LSTM, "gru": nn.GRU}
    between_layers = config.dropout if config.n_layers > 1 else 0.0
    sizes = config.d_model, config.d_model, config.n_layers
    return kinds[config.type](*sizes, batch_first=True, dropout=between_layers)
