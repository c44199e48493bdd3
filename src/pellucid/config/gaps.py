"""Rules for models that see both sides, and fill gaps instead of going on with a text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pellucid.config.base import Rule
from pellucid.errors import ConfigError

if TYPE_CHECKING:
    from pellucid.config.run import RunConfig

MASK = "<|mask|>"  # the control token that hides another


def rules_of_gaps(run: RunConfig) -> list[Rule]:
    """Whether objective, mask, vocabulary and rows belong together: a table of rules, as in `run.py`."""
    model, fills_gaps = run.model, run.objective.type == "masked"
    if not fills_gaps and getattr(model, "attention_mask", "causal") == "causal":
        return []
    sees_all = getattr(model, "attention", model.type) in ("explicit", "fused")
    return [
        (
            fills_gaps != (getattr(model, "attention_mask", "causal") == "none"),
            "objective.type model.attention_mask",
            f"{run.objective.type} needs a model that sees {'both sides' if fills_gaps else 'no later token'}",
            f"set model.attention_mask to {'none' if fills_gaps else 'causal'}",
        ),
        (
            not sees_all or getattr(model, "attention_soft_cap", None),
            f"model.{'attention_soft_cap' if sees_all else 'attention'} model.attention_mask",
            "only explicit and fused attention, uncapped, can see both sides",
            "leave it out",
        ),
        (
            fills_gaps and MASK not in getattr(run.tokenizer, "special_tokens", (MASK,)),
            "tokenizer.special_tokens objective.type",
            f"there is no token {MASK} to hide others",
            f'set special_tokens to ["<|endoftext|>", "{MASK}"]',
        ),
        (
            fills_gaps and run.data.documents_see_each_other,
            "data.documents_see_each_other objective.type",
            "a document is filled in from its own two sides, and others stand in its row",
            "set it to false, and data.packing to documents",
        ),
    ]


def require_next_tokens(config: RunConfig) -> None:
    """Raise ConfigError for a run that fills gaps: what its model says of the next token means nothing."""
    if config.objective.type == "masked":
        what = f"{config.name} fills gaps from both sides, and does not say which token comes next"
        fix = "evaluate, explain or embed it, or take a run of objective next_token"
        raise ConfigError("objective.type", what, fix)
