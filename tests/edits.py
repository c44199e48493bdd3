"""Functions that the equations name, edited in place as a student edits a file: whoever holds one gets the edit."""

import torch
import torch.nn.functional as F

from pellucid.model.attention import causal_mask, project, scaled_dot_product
from pellucid.model.embeddings import TiedEmbeddings
from pellucid.model.feed_forward import relu_squared
from pellucid.model.positions import clock_angles, rotate_pairs
from pellucid.objectives.next_token import cross_entropy

# The arguments are named where they are given by name; a global is one of the function's own file.
EDITS = {
    scaled_dot_product: lambda q, k, v, mask, dropout: 0 * q,
    causal_mask: lambda n_queries, n_keys, like: like.new_zeros(n_queries, n_keys),  # the future is seen
    project: lambda x, W_Q, W_K, W_V, width: [
        0 * W(x).unflatten(-1, (-1, width)).transpose(1, 2) for W in (W_Q, W_K, W_V)
    ],
    rotate_pairs: lambda x, cos, sin: x,
    clock_angles: lambda n_positions, width, base: torch.arange(n_positions)[:, None] * torch.ones(width // 2),
    relu_squared: lambda x: x,
    cross_entropy: lambda logits, targets: 2 * F.cross_entropy(logits.float(), targets, reduction="none"),
    TiedEmbeddings.embed: lambda self, tokens: 2 * F.embedding(tokens, self.embedding_VD),
}
NAMES = {function.__name__: function for function in EDITS}
OF_THE_MODEL = sorted(NAMES.keys() - {"cross_entropy"})


def edit(monkeypatch, name):
    """Give a function the code of its edit until the test ends."""
    monkeypatch.setattr(NAMES[name], "__code__", EDITS[NAMES[name]].__code__)
