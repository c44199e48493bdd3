"""The chat template: a conversation as tokens. Control tokens, which no text can forge, mark who speaks.

<|user|> Tell a fable about a fox. <|end|> <|assistant|> Long ago, … <|end|>
"""

import re
from collections.abc import Iterable
from itertools import chain
from typing import Literal, NamedTuple

from pellucid.errors import ConfigError
from pellucid.tokenizer.tokenizer import ASSISTANT, CHAT_TOKENS, END_OF_TURN, USER, Tokenizer

TOKEN_OF_ROLE = {"user": USER, "assistant": ASSISTANT}

# The template in the language Jinja, for other programs, which apply it to text before they encode it.
JINJA = (
    "{{ bos_token }}{% set first = namespace(words='') %}"
    "{% if tools or documents %}{{ raise_exception('this model knows no tools and no documents') }}{% endif %}"
    "{% for message in messages %}{% set role = message['role'] %}"
    "{% if role in ['system', 'developer'] and loop.first and not loop.last %}"
    "{% set first.words = message['content'] + '\\n\\n' %}"
    "{% elif role == 'user' or role == 'assistant' and not first.words and not message['tool_calls'] %}"
    f"<|{{{{ role }}}}|>{{{{ first.words + message['content'] }}}}{END_OF_TURN}{{% set first.words = '' %}}"
    "{% else %}{{ raise_exception('after one system message at most, a user and an assistant speak') }}"
    "{% endif %}{% endfor %}"
    f"{{% if add_generation_prompt %}}{ASSISTANT}{{% endif %}}"
)


class EncodedTurn(NamedTuple):
    """The token ids of a turn; the last `n_targets` are learned: an answer and its end."""

    ids: list[int]
    n_targets: int


def encode_turn(tokenizer: Tokenizer, role: Literal["user", "assistant"], text: str) -> EncodedTurn:
    """A turn as tokens. DataError for text that the vocabulary cannot write."""
    return in_template(tokenizer, role, tokenizer.encode(text))


def in_template(tokenizer: Tokenizer, role: Literal["user", "assistant"], text_ids: Iterable[int]) -> EncodedTurn:
    """A turn as tokens, of text that is already encoded."""
    text_ids = list(text_ids)
    ids = [tokenizer.control_id(TOKEN_OF_ROLE[role]), *text_ids, tokenizer.control_id(END_OF_TURN)]
    return EncodedTurn(ids, len(text_ids) + 1 if role == "assistant" else 0)


def prompt_ids(tokenizer: Tokenizer, turns: Iterable[tuple[Literal["user", "assistant"], str]]) -> list[int]:
    """Token ids of a document that begins with these turns, up to the assistant's answer."""
    ids = [tokenizer.end_of_text]
    for role, text in turns:
        ids += encode_turn(tokenizer, role, text).ids
    return [*ids, tokenizer.control_id(ASSISTANT)]


def ids_of_marked(tokenizer: Tokenizer, text: str) -> list[int]:
    """Token ids of a text that spells out control tokens (<|user|> and so on); without any it is a question."""
    parts = re.split(f"({'|'.join(map(re.escape, CHAT_TOKENS))})", text)
    if len(parts) == 1:
        return prompt_ids(tokenizer, [("user", text)])
    encoded = ([tokenizer.control_id(part)] if part in CHAT_TOKENS else tokenizer.encode(part) for part in parts)
    return [tokenizer.end_of_text, *chain.from_iterable(encoded)]


def require_chat_tokens(tokenizer: Tokenizer, where: str, run: str = "RUN") -> None:
    """Raise ConfigError, with advice about the run, if the vocabulary lacks the control tokens of conversations."""
    if not tokenizer.has_chat_tokens:
        what = "this model was not trained on conversations"
        fix = f"fine-tune it first: `pellucid train instructions_sft start_from={run}`"
        raise ConfigError(where, what, f"{fix} (a chat template that was imported is not used)")
