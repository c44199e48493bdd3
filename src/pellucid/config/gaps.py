"""Rules for models that see both sides, and fill gaps instead of going on with a text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pellucid.config.base import Rule
from pellucid.errors import ConfigError

if TYPE_CHECKING:
    from pellucid.config.run import RunConfig

MASK = "<|mask|>"  # the control token that hides another


def rules_of_gaps(run: RunConfig) -> Iterator[Rule]:
    """Whether objective, mask, vocabulary and rows belong together."""
    model, fills_gaps = run.model, run.objective.type == "masked"
    sees_both_sides = getattr(model, "attention_mask", "causal") == "none"
    if not fills_gaps and not sees_both_sides:
        return
    wrong = f"{run.objective.type} needs a model that sees {'both sides' if fills_gaps else 'no later token'}"
    fix = f"set model.attention_mask to {'none' if fills_gaps else 'causal'}"
    yield fills_gaps != sees_both_sides, "objective.type model.attention_mask", wrong, fix
    can_see_all = getattr(model, "attention", model.type) in ("explicit", "fused")
    key = f"model.{'attention_soft_cap' if can_see_all else 'attention'} model.attention_mask"
    wrong = "only explicit and fused attention, uncapped, can see both sides"
    yield not can_see_all or getattr(model, "attention_soft_cap", None), key, wrong, "leave it out"
    lacks_mask = fills_gaps and MASK not in getattr(run.tokenizer, "special_tokens", (MASK,))
    wrong, fix = f"there is no token {MASK} to hide others", f'set special_tokens to ["<|endoftext|>", "{MASK}"]'
    yield lacks_mask, "tokenizer.special_tokens objective.type", wrong, fix
    sees_others, keys = run.data.documents_see_each_other, "data.documents_see_each_other objective.type"
    wrong = "a document is filled in from its own two sides, and others stand in its row"
    yield fills_gaps and sees_others, keys, wrong, "set it to false, and data.packing to documents"


def require_next_tokens(config: RunConfig) -> None:
    """Raise ConfigError for a run that fills gaps: what its model says of the next token means nothing."""
    if config.objective.type == "masked":
        what = f"{config.name} fills gaps from both sides, and does not say which token comes next"
        fix = "evaluate, explain or embed it, or take a run of objective next_token"
        raise ConfigError("objective.type", what, fix)
