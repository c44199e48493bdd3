"""Reasons for a score that no honest model can have: it looks ahead, does not add up, or has seen the text.

Shapes: B rows, T positions, V vocabulary.
"""

from itertools import pairwise

import torch
from torch import Tensor, nn

from pellucid.data.batches import evaluation_batches
from pellucid.data.token_file import TokenFile
from pellucid.model.language_model import eval_mode
from pellucid.objectives.next_token import cross_entropy
from pellucid.runtime.precision import Precision

ROUNDING = 1e-2  # of a logit, or of a sum of probabilities, also in bfloat16
N_ROWS = 8  # that the checks of a model read


def why_below_the_floor(
    model: nn.Module, tokens: TokenFile, precision: Precision, trained_on: TokenFile | None = None
) -> list[str]:
    """Reasons found in a model, or in the text that it is scored on; empty if there is none."""
    reasons = []
    if looks_ahead(model, tokens, precision):
        reasons.append("what it says of a token depends on later ones")
    if not is_normalized(model, tokens, precision):
        reasons.append("its probabilities do not add up to 1")
    if trained_on is not None and (n := n_seen(tokens, trained_on)):
        reasons.append(f"{n:,} of its documents are in the training text")
    return reasons


@torch.inference_mode()
def looks_ahead(model: nn.Module, tokens: TokenFile, precision: Precision) -> bool:
    """Whether other tokens in the second half of a row change the logits of its first half."""
    inputs_BT = _first_rows(model, tokens, precision)
    half = (inputs_BT.size(1) + 1) // 2
    others_BT = torch.cat([inputs_BT[:, :half], inputs_BT.max() - inputs_BT[:, half:]], dim=1)
    logits_BTV, of_others_BTV = (_logits(model, row_BT, precision)[:, :half] for row_BT in (inputs_BT, others_BT))
    return bool((logits_BTV - of_others_BTV).abs().max() > ROUNDING)


@torch.inference_mode()
def is_normalized(model: nn.Module, tokens: TokenFile, precision: Precision) -> bool:
    """Whether exp(-nats) of all tokens adds up to 1 in the middle of each row, with the loss that scores them."""
    inputs_BT = _first_rows(model, tokens, precision)
    logits_BV = _logits(model, inputs_BT, precision)[:, inputs_BT.size(1) // 2]
    targets = torch.split(torch.arange(logits_BV.size(1), device=logits_BV.device), 256)
    for logits_V in logits_BV:
        nats_V = torch.cat([cross_entropy(logits_V.expand(len(part), -1), part) for part in targets])
        if not abs(float(nats_V.neg().exp().sum()) - 1) < ROUNDING:  # also for NaN
            return False
    return True


def n_seen(tokens: TokenFile, trained_on: TokenFile) -> int:
    """How many of these documents are, token for token, in the training text too."""
    seen = set(_documents(trained_on))
    return sum(document in seen for document in _documents(tokens))


def _documents(tokens: TokenFile) -> list[bytes]:
    return [tokens.tokens[a + 1 : b].tobytes() for a, b in pairwise(tokens.boundaries.tolist())]


def _first_rows(model: nn.Module, tokens: TokenFile, precision: Precision) -> Tensor:
    length = int(model.context_length)  # type: ignore[arg-type]
    batch, _ = next(evaluation_batches(tokens, length, N_ROWS, from_document_starts=True))
    return batch.inputs_BT.to(precision.device)


def _logits(model: nn.Module, inputs_BT: Tensor, precision: Precision) -> Tensor:
    with eval_mode(model), precision.autocast():
        logits_BTV: Tensor = model(inputs_BT)
    return logits_BTV.float()
