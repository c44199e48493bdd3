"""Pretraining: predict each token from those before it. With masked prompts it is supervised fine-tuning.

Shapes: B batch, T positions, V vocabulary, N predictions, E experts, L layers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from pellucid.config.model import DecoderConfig, ModelConfig
from pellucid.data.batches import IGNORE_INDEX, Batch
from pellucid.model.language_model import LanguageModel, SparseLayer
from pellucid.objectives.objective import Forward, Loss, Objective

LOGITS_AT_ONCE = 1 << 24  # 64 MB in float32: more than the demo has in an update


def cross_entropy(logits_NV: Tensor, targets_N: Tensor) -> Tensor:
    """-log softmax(logits)[target] of each prediction, (N,), in nats; 0 where there is nothing to predict.

    What training minimises and evaluation reports (equation 2 before its mean), in float32 or wider.
    """
    wide = torch.promote_types(logits_NV.dtype, torch.float32)
    return F.cross_entropy(logits_NV.to(wide), targets_N, ignore_index=IGNORE_INDEX, reduction="none")


def cross_entropies(logits_NV: Tensor, targets_N: Tensor) -> Tensor:
    """`cross_entropy` of any number of predictions, for training. Of many, the backward pass computes it again.

    Else it would keep the log-probabilities of all in float32: of 32 rows of 1,024 tokens and a vocabulary of 50,257,
    13 GB of copies. So it is computed for some predictions at a time. Compiled code makes no such copies by itself.
    """
    rows = max(1, LOGITS_AT_ONCE // logits_NV.size(1))
    if len(targets_N) <= rows or torch.compiler.is_compiling():
        return cross_entropy(logits_NV, targets_N)
    again = partial(checkpoint, cross_entropy, use_reentrant=False, preserve_rng_state=False)
    return torch.cat(list(map(again, torch.split(logits_NV, rows), torch.split(targets_N, rows))))


def nats_of(forward: Forward, inputs_BT: Tensor, targets_BT: Tensor) -> Tensor:
    """The loss of each prediction of a model, (N,)."""
    logits_BTV = forward(inputs_BT)
    return cross_entropies(logits_BTV.flatten(0, 1), targets_BT.flatten())


def next_token(forward: Forward, batch: Batch, nats: Callable[[Forward, Tensor, Tensor], Tensor] = nats_of) -> Loss:
    """Loss of pretraining: predict each token from those before it. `nats` may be compiled.

    The sum, not the mean, because micro-batches may have different numbers of targets: only the sum of sums
    divided by the sum of counts is the mean over the whole batch (equation 16).
    """
    return Loss(nats(forward, batch.inputs_BT, batch.targets_BT).sum(), batch.n_losses)


def choose_objective(config: ModelConfig, model: LanguageModel, compiles: bool = False, **options: Any) -> Objective:
    """Next-token prediction, with experts also their penalty. Compiled, model and loss are one graph."""
    objective: Objective = partial(next_token, nats=partial(torch.compile(nats_of) if compiles else nats_of, **options))
    if not isinstance(config, DecoderConfig) or config.experts is None:
        return objective
    weight = config.experts.load_balance_weight
    return partial(with_load_balance, objective=objective, layers=model.sparse_layers(), weight=weight)


def with_load_balance(
    forward: Forward, batch: Batch, *, objective: Objective, layers: Sequence[SparseLayer], weight: float
) -> Loss:
    """Another objective's loss, with a penalty for unevenly chosen experts (equation 41): the mean over the layers.

    Figures: the balance loss without its weight, and the load: the share of each expert in the choices of its layer.
    """
    with ExitStack() as stack:
        heard = [stack.enter_context(layer.probabilities()) for layer in layers]
        loss = objective(forward, batch)
    is_target_BT = batch.targets_BT != IGNORE_INDEX
    balances, counts = zip(
        *(load_balance(p_BTE, is_target_BT, layer.top_k) for (p_BTE,), layer in zip(heard, layers, strict=True)),
        strict=True,
    )
    balance, load_LE = torch.stack(balances).mean(), torch.stack(counts) / layers[0].top_k
    figures = {"balance_loss": balance.detach(), "expert_load": load_LE}
    return replace(loss, penalty=weight * balance, figures=figures)


def load_balance(probabilities_BTE: Tensor, is_target_BT: Tensor, top_k: int) -> tuple[Tensor, Tensor]:
    """E Σ_i f_i P_i of each row, times its number of targets, summed; and the number of targets of each expert (E,).

    Each row has its own f and P (DeepSeek-V3, 2024): a product of means over a batch is not the sum of those over its
    parts, so an update would depend on how its rows are divided among micro-batches and processes.
    """
    n_targets_B1 = is_target_BT.sum(dim=1, keepdim=True).clamp(min=1)
    is_chosen_BTE = torch.zeros_like(probabilities_BTE).scatter(-1, probabilities_BTE.topk(top_k).indices, 1.0)
    n_chosen_BE, probability_BE = (
        (x_BTE * is_target_BT[..., None]).sum(dim=1) for x_BTE in (is_chosen_BTE, probabilities_BTE)
    )
    n_experts = probabilities_BTE.size(-1)
    return n_experts * (n_chosen_BE * probability_BE / n_targets_B1).sum(), n_chosen_BE.sum(dim=0)
