"""The Instructions corpus: instructions about fables, each with an answer drawn from its exact distribution."""

import hashlib
import math
import random
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import islice

from pellucid.corpora.corpus import KnownConversations, Split, Turn
from pellucid.corpora.drawn import n_held_out
from pellucid.corpora.instructions.wordings import (
    FORMS,
    SEEN,
    UNSEEN,
    Form,
    Instruction,
    Task,
    instruct,
    pick,
    understand,
)
from pellucid.errors import DataError
from pellucid.languages.fables import GRAMMAR_VERSION, Fables
from pellucid.languages.fables.about import FablesAbout
from pellucid.languages.grammar.grammar import Rules

# Part of the corpus's identity: raise it whenever an instruction or its probability changes.
INSTRUCTIONS_VERSION = 1
# About one in this many pairs of animal and moral is never asked for in training.
PAIRS_PER_HELD_OUT = 10
Example = tuple[Instruction, str]


class InstructionsCorpus(KnownConversations):
    """`size` instructions with answers, of which round(size * validation_fraction), but at least one, for validation.

    The three forms (animal, moral, both) are equally frequent, and so are the tasks of a form. Half of validation uses
    new wordings, and it asks for all pairs of animal and moral; training never uses those wordings, nor some of the
    pairs, nor a validation answer. A pure function of its arguments and of the versions. Raises ConfigError.
    """

    skills = FablesAbout.skills

    def __init__(
        self, size: int, world_size: int, seed: int, validation_fraction: float, rules: Rules | None = None
    ) -> None:
        self._n_validation = n_held_out(size, validation_fraction, "instructions")
        self.fables = Fables(world_size, rules)
        self.animals = tuple(option.attributes["kind"] for option in self.fables.grammar.rule("animal").options)
        self.morals = tuple(self.fables.morals_of("fable"))
        self._size, self._seed, self._validation_fraction = size, seed, validation_fraction
        self.answers_for = lru_cache(maxsize=1024)(self._answers_for)

    @property
    def identity(self) -> dict[str, object]:
        """Everything the corpus depends on, ready for JSON."""
        return {
            "type": "instructions",
            "grammar_version": GRAMMAR_VERSION,
            "instructions_version": INSTRUCTIONS_VERSION,
            "size": self._size,
            "world_size": self.fables.world_size,
            "seed": self._seed,
            "validation_fraction": self._validation_fraction,
        }

    def examples(self, split: Split) -> Iterator[Example]:
        """The instructions of a split with their answers, written on demand; each call starts over."""
        held_out: set[str] = set()  # the answers
        for instruction, answer in self._stream("validation"):
            if split == "validation" and answer not in held_out:
                yield instruction, answer
            held_out.add(answer)
            if len(held_out) == self._n_validation:
                break
        if split == "train":
            new = (example for example in self._stream("train") if example[1] not in held_out)
            yield from islice(new, self._size - self._n_validation)

    def conversations(self, split: Split) -> Iterator[Sequence[Turn]]:
        """The examples as conversations of two turns."""
        return ((Turn("user", ask.text), Turn("assistant", answer)) for ask, answer in self.examples(split))

    def instruction_of(self, text: str) -> Instruction | None:
        """The instruction in a text, with its task; None for a text that does not ask for a fable of this world."""
        instruction = understand(text)
        return instruction if instruction and instruction.task.animal in (None, *self.animals) else None

    def task_of(self, text: str) -> Task | None:
        """The task of an instruction; None for any other text."""
        instruction = self.instruction_of(text)
        return instruction.task if instruction else None

    def ask(self, rng: random.Random, split: Split) -> Instruction:
        """A random instruction from the distribution of a split."""
        wordings = UNSEEN if split == "validation" and rng.random() < 0.5 else SEEN
        form = pick(rng, FORMS)
        task = self._draw_task(rng, form)
        while split == "train" and is_held_out(task):
            task = self._draw_task(rng, form)
        return instruct(task, pick(rng, wordings))

    def answers_to(self, question: str) -> FablesAbout:
        """p(answer | instruction): all fables, given the task. Raises DataError for other texts."""
        if (task := self.task_of(question)) is None:
            what = f"{question[:40]!r} asks for no fable of this world"
            raise DataError("instructions", what, f"ask for example {next(self.examples('validation'))[0].text!r}")
        return self.answers_for(task)

    @cached_property
    def entropy_nats(self) -> float:
        """The entropy of an answer, given its instruction: the exact mean over the tasks of validation.

        The mean over n equally probable animals is the entropy of a fable with such a hero minus the hero's, ln n,
        as the fable determines the hero. So three grammars are enough for any number of tasks.
        """
        n_animals, n_morals = len(self.animals), len(self.morals)
        of_animal = FablesAbout(self.fables, self.animals).entropy_nats - math.log(n_animals)
        of_moral = FablesAbout(self.fables, None, self.morals).entropy_nats - math.log(n_morals)
        of_both = FablesAbout(self.fables, self.animals, self.morals).entropy_nats - math.log(n_animals * n_morals)
        return (of_animal + of_moral + of_both) / len(FORMS)

    def _answers_for(self, task: Task) -> FablesAbout:
        return FablesAbout(self.fables, task.animal and [task.animal], task.moral and [task.moral])

    def _stream(self, split: Split) -> Iterator[Example]:
        # random.Random hashes a text seed with SHA-512: the same on every machine and Python.
        rng = random.Random(f"instructions {self._seed} {split}")
        while True:
            instruction = self.ask(rng, split)
            yield instruction, self.answers_for(instruction.task).write(rng)

    def _draw_task(self, rng: random.Random, form: Form) -> Task:
        animal, moral = pick(rng, self.animals), pick(rng, self.morals)
        return Task(None if form == "moral" else animal, None if form == "animal" else moral)


def is_held_out(task: Task) -> bool:
    """Whether training never asks for this pair of animal and moral."""
    digest = hashlib.sha256(f"{task.animal} and {task.moral}".encode()).digest()
    return task.form == "both" and int.from_bytes(digest[:8], "big") % PAIRS_PER_HELD_OUT == 0
