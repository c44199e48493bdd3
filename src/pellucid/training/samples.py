"""Samples of a model while it trains, for people to see: texts or, if it learns conversations, answers."""

from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Any

from pellucid.adapters.lora import merged
from pellucid.corpora.corpus import ConversationCorpus, Corpus
from pellucid.errors import ConfigError, DataError
from pellucid.generation.text import generate_text
from pellucid.objectives.task import Task
from pellucid.tokenizer import Tokenizer
from pellucid.training.trainer import Trainer


def build_samples(
    task: Task, corpus: Corpus | None, tokenizer: Tokenizer, trainer: Trainer, prompt: str, n: int, **options: Any
) -> Callable[[], list[str]]:
    """A function that writes n samples: what the task says, answers to held-out questions of the corpus, or texts.

    corpus: the conversations that the model learns, if it does. options: see `generate_text`. Raises ConfigError now,
    and not at the first sample, if the vocabulary lacks a character of the prompt.
    """
    model, precision = trainer.model, trainer.precision
    if task.write_samples is not None:
        return partial(task.write_samples, model, n)
    questions: list[str] = []
    if corpus is not None:
        assert isinstance(corpus, ConversationCorpus)
        questions = first_questions(corpus, tokenizer, model.max_positions, n)
    if not questions:
        try:
            tokenizer.encode(prompt)
        except DataError as error:
            raise ConfigError("sample.prompt", error.what, "write it in the characters of the corpus") from None

    def answers() -> list[str]:
        from pellucid.generation.chat import Conversation

        with trainer.whole_model(), merged(model):
            conversations = [(question, Conversation(model, tokenizer, precision, **options)) for question in questions]
            return [f"**{question}**\n\n{conversation.ask(question)}" for question, conversation in conversations]

    def texts() -> list[str]:
        with trainer.whole_model(), merged(model), precision.for_decoding().autocast():
            completions = generate_text(model, tokenizer, prompt, n_samples=n, **options)
        return [prompt + completion.completion for completion in completions]

    return answers if questions else texts


def first_questions(corpus: ConversationCorpus, tokenizer: Tokenizer, longest: int, n: int) -> list[str]:
    """The first `n` held-out questions of at most `longest` tokens."""
    from pellucid.tokenizer.chat import prompt_ids

    first = (turns[:1] for turns in corpus.conversations("validation"))
    return [turns[0].text for turns in islice((one for one in first if len(prompt_ids(tokenizer, one)) <= longest), n)]
