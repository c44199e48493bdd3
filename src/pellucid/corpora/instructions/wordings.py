"""Wordings of instructions: a task as text, and text back to the task.

"Tell me a story about a fox in which someone shares." A wording is an opening ("Tell me"), a noun ("a story"), a link
to the animal ("about") and a link to the moral ("in which"). All combine, so few words make many wordings. Some
openings and a noun are for validation alone: a model that understands them has not just memorized instructions.
"""

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal, NamedTuple, TypeVar

from pellucid.languages.fables.world import MORALS, article

Form = Literal["animal", "moral", "both"]
FORMS: tuple[Form, ...] = ("animal", "moral", "both")

# An opening and the mark that ends the sentence.
OPENINGS = (
    ("Tell", "."),
    ("Tell me", "."),
    ("Please tell", "."),
    ("Please tell me", "."),
    ("Write", "."),
    ("Please write", "."),
    ("Give me", "."),
    ("Let me hear", "."),
    ("I want to hear", "."),
    ("I would like to hear", "."),
    ("Will you tell me", "?"),
    ("Can you write", "?"),
)
UNSEEN_OPENINGS = (("Now tell us", "."), ("Show me", "."), ("May I hear", "?"), ("Do you know", "?"))
NOUNS = ("a fable", "a story", "a tale")
UNSEEN_NOUNS = ("a little story",)
ANIMAL_LINKS = ("about", "of")
DEED_LINKS = ("in which", "where")  # before what happens
MORAL_LINKS = ("with the moral", "ending with the moral")  # before the moral itself

# What happens in the fables of each moral.
DEEDS = {
    "sharing": "someone shares",
    "greed": "someone will not share",
    "patience": "the slow one wins a race",
    "kindness": "someone gives up a race to help",
    "honesty": "a thief is sorry",
    "lies": "a thief lies",
    "help": "someone in trouble is helped at once",
    "mercy": "someone in trouble is left alone",
    "flattery": "sweet words win a supper",
    "plainness": "sweet words do not work",
    "work": "someone works for the winter",
    "idleness": "someone dances all summer",
    "quarrel": "a thief ends a quarrel",
    "agreement": "a quarrel ends well",
    "nature": "someone is glad to be home again",
    "envy": "two envy each other",
    "promise": "someone keeps a promise",
    "trust": "someone forgets a promise",
}
_MORAL_OF_DEED = {deed: moral for moral, deed in DEEDS.items()}
_MORAL_OF_SENTENCE = {sentence: moral for moral, sentence in MORALS.items()}
T = TypeVar("T")


@dataclass(frozen=True)
class Task:
    """The required kind of a fable's hero, its moral (a key of MORALS), or both."""

    animal: str | None = None
    moral: str | None = None

    @property
    def form(self) -> Form:
        return "both" if self.animal and self.moral else "animal" if self.animal else "moral"


class Wording(NamedTuple):
    """The words around the task. A task uses only the links that it needs."""

    opening: tuple[str, str]
    noun: str
    animal_link: str
    moral_link: str

    @property
    def is_seen(self) -> bool:
        """Whether training uses this wording."""
        return self.opening in OPENINGS and self.noun in NOUNS


_LINKS = (ANIMAL_LINKS, DEED_LINKS + MORAL_LINKS)
SEEN = tuple(map(Wording._make, product(OPENINGS, NOUNS, *_LINKS)))
UNSEEN = tuple(map(Wording._make, product(UNSEEN_OPENINGS, NOUNS + UNSEEN_NOUNS, *_LINKS)))


@dataclass(frozen=True)
class Instruction:
    """A task in words."""

    text: str
    task: Task
    is_seen_wording: bool


def instruct(task: Task, wording: Wording) -> Instruction:
    """The instruction for a task in this wording."""
    (opening, mark), noun, animal_link, moral_link = wording
    text = f"{opening} {noun}"
    if task.animal:
        text += f" {animal_link} {article(task.animal)}{task.animal}"
    if task.moral and moral_link in DEED_LINKS:
        text += f" {moral_link} {DEEDS[task.moral]}"
    elif task.moral:
        text += f'{"," * bool(task.animal)} {moral_link} "{MORALS[task.moral]}"'
    text += mark if mark == "?" or not text.endswith('"') else ""
    return Instruction(text, task, wording.is_seen)


def understand(text: str) -> Instruction | None:
    """The instruction in a text; None for any other text."""
    match = _INSTRUCTION.fullmatch(text)
    if not match:
        return None
    what = match["what"] or ""
    moral = _MORAL_OF_SENTENCE.get(what[1:-1]) if what.startswith('"') else _MORAL_OF_DEED.get(what)
    opening = next(pair for pair in OPENINGS + UNSEEN_OPENINGS if pair[0] == match["opening"])
    wording = Wording(opening, match["noun"], match["animal_link"] or "", match["moral_link"] or "")
    instruction = instruct(Task(match["animal"], moral), wording)
    return instruction if instruction.text == text and (moral or match["animal"]) else None


def pick(rng: random.Random, options: Sequence[T]) -> T:
    """A random option, uniformly; the same one on every machine and Python."""
    return options[int(rng.random() * len(options))]


def _one_of(group: str, texts: Sequence[str]) -> str:
    return f"(?P<{group}>{'|'.join(map(re.escape, texts))})"


_INSTRUCTION = re.compile(
    f"{_one_of('opening', [opening for opening, _ in OPENINGS + UNSEEN_OPENINGS])}"
    f" {_one_of('noun', NOUNS + UNSEEN_NOUNS)}"
    f"( {_one_of('animal_link', ANIMAL_LINKS)} an? (?P<animal>[a-z ]+?))?"
    f"(,? {_one_of('moral_link', DEED_LINKS + MORAL_LINKS)} (?P<what>.+?))?[.?]?"
)
