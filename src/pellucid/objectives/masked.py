"""Masked prediction: hide some tokens of a row, and predict them from both sides (Devlin et al. 2019).

Each hidden token is replaced by the mask token. (BERT leaves a tenth as they are and replaces another tenth by random
ones, so that texts without masks look alike; here every scored place is masked, so there is no need.)

Shapes: B rows, T positions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch

from pellucid.config.gaps import MASK
from pellucid.data.batches import IGNORE_INDEX, Batch, Batches
from pellucid.data.prepared import PreparedData
from pellucid.data.token_file import TokenFile
from pellucid.model.language_model import LanguageModel, eval_mode
from pellucid.objectives.objective import Objective
from pellucid.objectives.task import Task, Validation
from pellucid.tokenizer import Tokenizer


def hide(batch: Batch, share: float, mask_id: int, control_ids: Sequence[int], seed: Sequence[int]) -> Batch:
    """The batch with a random share of its tokens hidden, which are its targets now (equation 63).

    Which ones, the seed decides. Control tokens are never hidden, and of each row at least one other token is.
    """
    may_hide_BT = ~torch.isin(batch.inputs_BT, torch.tensor(control_ids))
    draws = np.random.default_rng(seed).random(batch.inputs_BT.shape)
    draws_BT = torch.from_numpy(draws).masked_fill(~may_hide_BT, 2.0)
    smallest_B1 = draws_BT.min(dim=1, keepdim=True).values
    is_hidden_BT = may_hide_BT & (draws_BT <= smallest_B1.clamp(min=share))
    return Batch(
        batch.inputs_BT.masked_fill(is_hidden_BT, mask_id), batch.inputs_BT.masked_fill(~is_hidden_BT, IGNORE_INDEX)
    )


def masked_task(
    batches: Batches,
    objective: Objective,
    share: float,
    data: PreparedData,
    evaluate: Callable[[LanguageModel, int | None], Validation],
) -> Task:
    """Learning to fill gaps. Which tokens of a micro-batch are hidden is a function of the seed and its number."""
    mask_id, controls = data.tokenizer.control_id(MASK), data.tokenizer.control_ids
    return Task(
        lambda i, rows: hide(batches.batch(i), share, mask_id, controls, (batches.seed, i, 1)).part(
            rows
        ),  # the order of rows has two numbers
        objective,
        evaluate,
        partial(filled_in, file=data.validation, tokenizer=data.tokenizer, share=share),
    )


@torch.inference_mode()
def filled_in(model: LanguageModel, n: int, *, file: TokenFile, tokenizer: Tokenizer, share: float) -> list[str]:
    """The first n held-out documents with gaps, and in brackets what the model puts there."""
    mask_id, device, texts = tokenizer.control_id(MASK), next(model.parameters()).device, []
    for number, (start, end) in enumerate(zip(file.boundaries[:n], file.boundaries[1:], strict=False)):
        ids = torch.from_numpy(file.tokens[start : min(end, start + model.context_length)].astype(np.int64))
        hidden = hide(Batch(ids[None], ids[None]), share, mask_id, tokenizer.control_ids, (number,))
        with eval_mode(model):
            guesses_T = model(hidden.inputs_BT.to(device))[0].argmax(dim=-1).cpu()
        is_gap_T = hidden.targets_BT[0] != IGNORE_INDEX
        shown = zip(torch.where(is_gap_T, guesses_T, ids).tolist(), is_gap_T.tolist(), strict=True)
        parts = [f"[{tokenizer.decode([id_])}]" if is_gap else tokenizer.decode([id_]) for id_, is_gap in shown]
        texts.append("".join(parts[1:]))
    return texts
