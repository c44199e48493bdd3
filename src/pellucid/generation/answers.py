"""Answers to prompts, all together: what rollouts, evaluations and teachers ask for."""

from __future__ import annotations

from collections.abc import Sequence

from pellucid.errors import ConfigError
from pellucid.generation.engine import in_step
from pellucid.generation.sampling import Sampling
from pellucid.generation.writing import Writing
from pellucid.model.language_model import LanguageModel


def write_answers(
    model: LanguageModel,
    prompts: Sequence[Sequence[int]],
    seeds: Sequence[Sequence[int]],
    *,
    max_new_tokens: int,
    stop_ids: Sequence[int],
    temperature: float = 1.0,
    keeps_log_p: bool = False,
) -> list[Writing]:
    """An answer to each prompt, no longer than the context holds after it.

    The caller opens autocast. Raises ConfigError for a prompt without room.
    """
    room = model.max_positions - max(map(len, prompts))
    if room < 1:
        what = f"a prompt of {model.max_positions - room} tokens leaves no room for an answer in {model.max_positions}"
        raise ConfigError("model.context_length", what, "use a model with a longer context, or shorter prompts")
    sampling = Sampling(temperature)
    limits = [min(max_new_tokens, model.max_positions - len(prompt)) for prompt in prompts]
    writings = [
        Writing(prompt, limit, sampling, seed, keeps_log_p=keeps_log_p)
        for prompt, limit, seed in zip(prompts, limits, seeds, strict=True)
    ]
    for _ in in_step(model, writings, stop_ids=stop_ids):
        pass
    return writings
