"""The body of a request: fields that would change the answer are understood or refused, others are passed over."""

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, model_validator

# Values of fields that we do not have: with them the answer is the same, by OpenAI's API or by that of vLLM and
# llama.cpp.
IDLE: dict[str, tuple[Any, ...]] = {
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "parallel_tool_calls": (True, False),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "modalities": (["text"],),
    "reasoning_effort": ("none",),
    "verbosity": ("medium",),
    "service_tier": ("auto", "default"),
    "store": (False,),
    "ignore_eos": (False,),
    "repeat_penalty": (1.0,),
    "cache_prompt": (True, False),
    "skip_special_tokens": (True,),
    "use_beam_search": (False,),
    "length_penalty": (1.0,),
    "typical_p": (1.0,),
    "mirostat": (0,),
}
IDLE_IN_RESPONSES: dict[str, tuple[Any, ...]] = {
    **IDLE,
    "background": (False,),
    "include": ([],),
    "reasoning": ({}, {"effort": "none"}),
    "stream_options": ({}, {"include_obfuscation": False}),
    "truncation": ("auto",),
}
IDLE_IN_PARTS: dict[str, tuple[Any, ...]] = {"annotations": ([],), "logprobs": ([],)}
IDLE_IN_MESSAGES: dict[str, tuple[Any, ...]] = {"tool_calls": ([],), "annotations": ([],)}


class Body(BaseModel):
    """A strict model: values must have their types, so "5" is not a number."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    idle: ClassVar[Mapping[str, tuple[Any, ...]]] = {}

    @model_validator(mode="before")
    @classmethod
    def _without_idle_fields(cls, body: Any) -> Any:
        if not isinstance(body, dict):
            return body
        lacking = body.keys() - cls.model_fields.keys()
        idle = {name for name in lacking if body[name] is None or body[name] in cls.idle.get(name, ())}
        return {name: value for name, value in body.items() if name not in idle}
