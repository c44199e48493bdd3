"""The initial weights: small enough that no layer dominates the others.

Matrices, embeddings and learned positions are drawn from a normal distribution of mean 0; biases are 0 and
the gains of norms 1.
"""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING

import torch
from torch import nn

from pellucid.model.attention import MultiHeadAttention
from pellucid.model.decoder import Decoder
from pellucid.model.positions import Sinusoidal

if TYPE_CHECKING:
    from pellucid.model.recurrent import Recurrent

EMBEDDING_STD = 0.02
OUTPUT_PROJECTIONS = ("W_O", "W_2")  # the last matrix of attention and of feed-forward


@torch.no_grad()
def initialize(model: Decoder, *, embedding_std: float | None, zero_init_projections: bool, copying_init: bool) -> None:
    """GPT-2's initialisation (Radford et al. 2019, section 2.3), with a deviation that suits the width.

    GPT-2 draws matrices with a standard deviation of 0.02 at widths around 1000. sqrt(2 / (5 d_model)) (Nguyen and
    Salazar 2019) agrees there (0.0198 at 1024) and suits smaller widths too. Output projections are divided by
    sqrt(2 n_layers), so that the sum over the sublayers keeps its scale, or are zero: then each block starts
    as the identity.
    """
    # Sinusoidal positions are of order one and drown embeddings of 0.02: the lecture notes' model still knew only
    # letter frequencies after 250 steps. 1 / sqrt(d_model) leaves tied logits of order one.
    d_model = model.embeddings.embedding_VD.size(1)
    default_std = 1 / sqrt(d_model) if isinstance(model.positions, Sinusoidal) else EMBEDDING_STD
    for embedding in (*model.embeddings.parameters(), *model.positions.parameters()):
        nn.init.normal_(embedding, std=default_std)
    if embedding_std is not None:
        nn.init.normal_(model.embeddings.embedding_VD, std=embedding_std)

    matrix_std = sqrt(2 / (5 * d_model))
    output_std = 0.0 if zero_init_projections else matrix_std / sqrt(2 * model.n_layers)
    for name, module in model.blocks.named_modules():
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=output_std if name.endswith(OUTPUT_PROJECTIONS) else matrix_std)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    for layer in model.sparse_layers():
        layer.initialize_router()
    if copying_init:
        start_as_copier([module for module in model.blocks.modules() if isinstance(module, MultiHeadAttention)][-1])


def start_as_copier(attention: MultiHeadAttention) -> None:
    """W_V orthogonal and W_O = W_V^T / 2: each head adds half of what it attends to, in its own directions.

    With tied embeddings this raises the logits of the tokens attended to from the first step on: to repeat a word, the
    model has only to find it. With the factor 1/2, the position's own token still counts more (equation 32).
    """
    nn.init.orthogonal_(attention.W_V.weight)
    attention.W_O.weight.copy_(attention.W_V.weight.T / 2)


@torch.no_grad()
def initialize_recurrent(model: Recurrent) -> None:
    """Embeddings and input matrices of deviation 1 / sqrt(d_model), recurrent matrices orthogonal, biases zero.

    An orthogonal matrix neither shrinks nor stretches h, however often it is applied (Saxe et al. 2014). An LSTM's
    forget gate starts with bias 1: it keeps more than it forgets (Jozefowicz et al. 2015).
    """
    width = model.layers.hidden_size
    for embedding in model.embeddings.parameters():
        nn.init.normal_(embedding, std=1 / sqrt(width))
    for name, stacked in model.layers.named_parameters():
        for gate in torch.split(stacked, width):  # PyTorch stacks the matrices, or biases, of all gates
            if name.startswith("weight_hh"):
                nn.init.orthogonal_(gate)
            elif name.startswith("weight_ih"):
                nn.init.normal_(gate, std=1 / sqrt(width))
            else:
                nn.init.zeros_(gate)
        if isinstance(model.layers, nn.LSTM) and name.startswith("bias_ih"):
            nn.init.ones_(stacked[width : 2 * width])  # the gates' order: input, forget, cell, output
