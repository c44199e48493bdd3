"""Builds what came before the decoder: the neural n-gram and the recurrent networks."""

import torch
import torch.nn.functional as F
from torch import nn

from pellucid.config.model import MLPConfig, RecurrentConfig
from pellucid.model.build import build_embeddings
from pellucid.model.feed_forward import Activation
from pellucid.model.initialization import initialize_recurrent
from pellucid.model.mlp import MLP
from pellucid.model.norms import LayerNorm
from pellucid.model.recurrent import LSTM, Recurrent

ACTIVATIONS: dict[str, Activation] = {"tanh": torch.tanh, "relu": F.relu}
KINDS: dict[str, type[nn.RNN | nn.LSTM | nn.GRU]] = {"rnn": nn.RNN, "lstm": LSTM, "gru": nn.GRU}


def build_mlp(config: MLPConfig, vocab_size: int) -> MLP:
    return MLP(
        vocab_size=vocab_size,
        context_length=config.context_length,
        window=config.window,
        embeddings=build_embeddings(config, vocab_size),
        d_model=config.d_model,
        d_ff=config.d_ff or 4 * config.d_model,
        activation=ACTIVATIONS[config.activation],
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
    between_layers = config.dropout if config.n_layers > 1 else 0.0
    kind, width = KINDS[config.type], config.d_model
    return kind(width, width, config.n_layers, batch_first=True, dropout=between_layers)
