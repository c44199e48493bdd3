"""Rules for policies that are asked questions, and may think before they answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pellucid.config.base import Rule
from pellucid.config.languages import HopsConfig, SumsConfig
from pellucid.config.post_training import GRPOConfig

if TYPE_CHECKING:
    from pellucid.config.run import RunConfig


def rules_of_questions(run: RunConfig) -> list[Rule]:
    """Whether questions, thoughts and their price belong together: a table of rules, as in `run.py`."""
    corpus, objective = run.corpus, run.objective
    if not isinstance(objective, GRPOConfig):
        return []
    asks = isinstance(corpus, HopsConfig | SumsConfig)
    return [
        (
            getattr(corpus, "thoughts", "optional") != "optional",
            "objective.type corpus.thoughts",
            "a policy writes the mark that says whether it thinks, which only optional thoughts have",
            "set corpus.thoughts to optional, as in the run of start_from",
        ),
        (
            asks and objective.reward.type != "verifier",
            "objective.reward corpus.type",
            f"a reward model judges answers to instructions, not to the questions of {corpus.type}",
            "leave it out",
        ),
        (
            objective.price > 0 and not asks,
            "objective.price corpus.type",
            "it is the price of a thought before an answer, and fables have none",
            "leave it out, or use corpus hops or sums",
        ),
    ]
