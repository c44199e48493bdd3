"""Rules for policies that are asked questions, and may think before they answer; and for tools."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pellucid.config.base import Rule
from pellucid.config.languages import HopsConfig, SumsConfig
from pellucid.config.post_training import GRPOConfig

if TYPE_CHECKING:
    from pellucid.config.run import RunConfig


def rules_of_questions(run: RunConfig) -> Iterator[Rule]:
    """Whether questions, thoughts, a tool and their price belong together."""
    corpus, objective, thoughts = run.corpus, run.objective, getattr(run.corpus, "thoughts", "optional")
    if not isinstance(objective, GRPOConfig):
        is_lost = thoughts == "tool" and (objective.type == "masked" or getattr(objective, "on_policy", False))
        wrong = "gaps and on_policy have no way to leave out of the loss what a tool writes"
        yield is_lost, "objective.type corpus.thoughts", wrong, "set corpus.thoughts to way"
        return
    is_bound = thoughts not in ("optional", "tool")
    wrong = "a policy decides whether it thinks, which optional thoughts alone allow, or it asks a tool"
    fix = "set corpus.thoughts to optional or tool, as in the run of start_from"
    yield is_bound, "objective.type corpus.thoughts", wrong, fix
    asks = isinstance(corpus, HopsConfig | SumsConfig)
    wrong = f"a reward model judges answers to instructions, not to the questions of {corpus.type}"
    yield asks and objective.reward.type != "verifier", "objective.reward corpus.type", wrong, "leave it out"
    has_price = objective.price > 0 and (not asks or thoughts == "tool")
    wrong = "it is the price of a thought that a policy may leave out, and here it may leave out none"
    fix = "leave the price out, or use corpus hops or sums with thoughts optional"
    yield has_price, "objective.price corpus.type", wrong, fix
