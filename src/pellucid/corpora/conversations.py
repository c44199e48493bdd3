"""Conversations from files or the hub: each record has a list of messages, or a prompt and its answer.

{"messages": [{"role": "user", "content": "Who are you?"}, {"role": "assistant", "content": "A small model."}]}
{"prompt": "Who are you?", "answer": "A small model."}

An assistant's message may have a thought, `reasoning_content`: it becomes the beginning of the answer, between marks.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pellucid.corpora.corpus import ConversationCorpus, Split, Turn
from pellucid.corpora.hugging_face import DataSet
from pellucid.corpora.thinking import with_thought
from pellucid.errors import DataError

MESSAGES = "messages"
THOUGHT = "reasoning_content"
READ_KEYS = {"role", "content", "weight", THOUGHT}
ROLES = ("user", "assistant")


@dataclass
class ConversationsCorpus(DataSet, ConversationCorpus):
    """One conversation per record: its `messages`, or a question in `prompt_field` and its answer in `answer_field`.

    User and assistant take turns, and the assistant has the last word. A `system` message is put before the first
    question. Raises as a DataSet does, and DataError for any other record, with its line or number.
    """

    kind = "conversations"

    prompt_field: str = "prompt"
    answer_field: str = "answer"
    _unread: set[str] = field(default_factory=set, init=False, repr=False, compare=False)

    def conversations(self, split: Split) -> Iterator[list[Turn]]:
        """The conversations of a split in the order of the records."""
        return self.documents(split, self._read)

    def notes(self) -> list[str]:
        """The notes on any data set, and the keys of messages that are not read."""
        unread = f"keys of messages that are not read: {', '.join(sorted(self._unread))}"
        return [*super().notes(), *([unread] if self._unread else [])]

    def _read(self, split: str) -> Iterator[list[Turn]]:
        for where, record in self.rows(split, [MESSAGES], [self.prompt_field, self.answer_field]):
            yield _turns(self._messages(record, where), where)

    def _messages(self, record: Mapping[str, Any], where: str) -> list[tuple[Any, Any]]:
        """The role and content of each message of a record."""
        if record.get(MESSAGES) is not None:
            messages = record[MESSAGES]
            if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
                fix = 'give [{"role": ..., "content": ...}, ...]'
                raise DataError(where, f"{MESSAGES} is not a list of messages", fix)
            found = []
            for i, message in enumerate(messages):
                if message.get("weight") not in (None, 1):
                    fix = "every answer is learned: leave out the record, or end it before this turn"
                    raise DataError(where, f"turn {i + 1} has the weight {message['weight']!r}", fix)
                self._unread |= {key for key, value in message.items() if value is not None} - READ_KEYS
                found.append((message.get("role"), _content(message, f"{where}, turn {i + 1}")))
            return found
        for knob, name in (("prompt_field", self.prompt_field), ("answer_field", self.answer_field)):
            if name not in record:
                fix = f"name a column by corpus.{knob}, or give {MESSAGES}; there are {', '.join(record)}"
                raise DataError(where, f"no column {name}", fix)
        return list(zip(ROLES, (record[self.prompt_field], record[self.answer_field]), strict=True))


def _content(message: Mapping[str, Any], where: str) -> Any:
    """The text of a message, which a thought begins, if it has one."""
    thought, answer = message.get(THOUGHT), message.get("content")
    if thought is None:
        return answer
    if not isinstance(thought, str) or message.get("role") != ROLES[1]:
        raise DataError(f"{where}, {THOUGHT}", "a thought is text, and the assistant's", "leave it out")
    return with_thought(thought, answer) if isinstance(answer, str) and answer.strip() else answer


def _turns(messages: list[tuple[Any, Any]], where: str) -> list[Turn]:
    for i, (_, text) in enumerate(messages):
        if not isinstance(text, str) or not text.strip():
            what = "is empty" if text is None or isinstance(text, str) else f"is {type(text).__name__}, not text"
            raise DataError(where, f"turn {i + 1} {what}", "give it a text, or leave out the record")
    before = messages[0][1] + "\n\n" if messages and messages[0][0] == "system" else ""
    turns = messages[1:] if before else messages
    for i, (role, _) in enumerate(turns):
        if role != ROLES[i % 2]:
            fix = "user and assistant take turns, the user first; a system may speak before them"
            raise DataError(where, f"turn {i + 1 + bool(before)} is of {role!r}, not of the {ROLES[i % 2]}", fix)
    if len(turns) % 2 or not turns:
        raise DataError(where, "no answer at the end", "let the assistant have the last word, or leave out the record")
    return [Turn(role, (before if i == 0 else "") + text) for i, (role, text) in enumerate(turns)]
