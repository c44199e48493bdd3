"""Rules for policies that are asked questions, and may think before they answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pellucid.config.base import Rule
from pellucid.config.languages import HopsConfig, SumsConfig
from pellucid.config.post_training import GRPOConfig

if TYPE_CHECKING:
    from pellucid.config.run import RunConfig


def rules_of_questions(run: RunConfig) -> Iterator[Rule]:
    """Whether questions, thoughts and their price belong together."""
    corpus, objective = run.corpus, run.objective
    if not isinstance(objective, GRPOConfig):
        return
    is_bound = getattr(corpus, "thoughts", "optional") != "optional"
    wrong = "a policy writes the mark that says whether it thinks, which only optional thoughts have"
    fix = "set corpus.thoughts to optional, as in the run of start_from"
    yield is_bound, "objective.type corpus.thoughts", wrong, fix
    asks = isinstance(corpus, HopsConfig | SumsConfig)
    wrong = f"a reward model judges answers to instructions, not to the questions of {corpus.type}"
    yield asks and objective.reward.type != "verifier", "objective.reward corpus.type", wrong, "leave it out"
    wrong = "it is the price of a thought before an answer, and fables have none"
    fix = "leave it out, or use corpus hops or sums"
    yield objective.price > 0 and not asks, "objective.price corpus.type", wrong, fix
