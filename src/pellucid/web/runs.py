"""Runs, checkpoints, models in memory and held-out texts, for the page.

A checkpoint is named RUN@STEP. Models are cached by the hash of their files, and corpora by their config and the
fingerprint of the data in the checkpoint, so a run that is trained again is never shown with old numbers.
"""

import hashlib
import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from threading import Lock

from pellucid.checkpoint.run_directory import find_step_directory
from pellucid.checkpoint.step_directory import MANIFEST
from pellucid.config.load import load_run_config
from pellucid.config.run import RunConfig
from pellucid.corpora.corpus import ConversationCorpus, Corpus, KnownConversations, Turn
from pellucid.corpora.drawn import Drawn
from pellucid.data.truth import skill_characters
from pellucid.errors import CheckpointError, ConfigError, DataError, PellucidError, explained
from pellucid.files import sha256
from pellucid.inspection.explain import validation_documents
from pellucid.inspection.explain_truth import truth_of_text
from pellucid.inspection.trace import Trace
from pellucid.languages.language import SPELLING, Language
from pellucid.model.language_model import LanguageModel
from pellucid.runtime.precision import precision_here
from pellucid.tokenizer import Tokenizer
from pellucid.tokenizer.chat import TOKEN_OF_ROLE
from pellucid.tokenizer.tokenizer import ASSISTANT, END_OF_TURN
from pellucid.trained import TrainedModel, load_trained_model
from pellucid.web.cache import Cache
from pellucid.web.descriptions import NOT_BEGUN, Json, describe, folder_of, rows_of, steps_of

_log = logging.getLogger(__name__)

MOST_BYTES_OF_MODELS = 1 << 30  # with their traces
MOST_BYTES_OF_TRACES = 1 << 26  # of each model
MOST_CORPORA, MOST_WORDS = 16, 4096
FABLES_FOR_EXAMPLES = 6
CHOICE = "choice"
LIKELIEST = (0.2, 0.5)  # the probability of the likeliest token where the page opens
LEAST_TOKENS_BEFORE = 24  # an example for recall should be long enough to contain a name; or half of a shorter text


def bytes_of(traced: Trace) -> int:
    """About the bytes of a trace, with the tensors inside its layers, which are computed later."""
    return 2 * traced.attention.nbytes + 8 * traced.residuals.nbytes


@dataclass(frozen=True)
class Opened:
    """A checkpoint in memory. digest: hash of its files. reading: hash of tokenizer, config and data."""

    digest: str
    reading: str
    trained: TrainedModel
    model: LanguageModel
    traces: Cache[Trace] = field(default_factory=lambda: Cache(MOST_BYTES_OF_TRACES, bytes_of), repr=False)

    @property
    def tokenizer(self) -> Tokenizer:
        return self.trained.tokenizer

    @property
    def fills_gaps(self) -> bool:
        return self.trained.config.objective.type == "masked"

    @property
    def n_bytes(self) -> int:
        return sum(parameter.nbytes for parameter in self.model.parameters())


class Runs:
    """The runs of a server. Raises PellucidError where a run or a checkpoint cannot be shown."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = named(paths)
        self.folders = {name: folder_of(path) for name, path in self._paths.items()}
        self.grammar = Lock()  # to be held while using a corpus
        self._models: Cache[Opened] = Cache(MOST_BYTES_OF_MODELS, lambda opened: opened.n_bytes + MOST_BYTES_OF_TRACES)
        self._corpora: Cache[Corpus] = Cache(MOST_CORPORA)
        self._changed: dict[str, str] = {}  # why no truth is shown, by the fingerprint of the data
        self._documents: Cache[tuple[list[str], Iterator[str]]] = Cache(MOST_CORPORA)
        self._loading = Lock()

    # Runs

    def described(self) -> Json:
        """The runs, with the sizes of their models and their checkpoints, oldest first.

        A run that cannot be shown has a `problem` instead. If none can be shown, the first problem is raised.
        """
        descriptions: list[Json] = []
        problems: list[Exception] = []
        for name, path in self._paths.items():
            try:
                with _errors_by_name(name, path):
                    descriptions.append(describe(name, _present(path)))
            except Exception as problem:  # whatever is wrong with one run, the others are shown
                if not isinstance(problem, PellucidError):
                    _log.exception("%s cannot be shown", path)
                problems.append(problem)
                descriptions.append({"name": name, **NOT_BEGUN, "problem": str(problem)})
        if len(problems) == len(descriptions):
            raise problems[0]
        return {"runs": descriptions}

    def configs(self) -> dict[str, RunConfig]:
        """The config of each run that has one that can be read, by name."""
        configs = {}
        for name, folder in self.folders.items():
            with suppress(PellucidError, OSError):  # `described` says what is wrong with it
                configs[name] = load_run_config(folder / "config.yaml")
        return configs

    def metrics(self, name: str) -> list[Json]:
        """The rows of metrics.jsonl."""
        with self._reading(name) as path:
            return rows_of(path)

    @contextmanager
    def _reading(self, name: str) -> Iterator[Path]:
        """The folder of a run. ConfigError if there is no such run; see also `_errors_by_name`."""
        if name not in self._paths:
            raise ConfigError("run", f"there is no {name!r} here", f"choose one of {', '.join(self._paths)}")
        with _errors_by_name(name, self._paths[name]):
            yield _present(self._paths[name])

    # Checkpoints

    def open(self, checkpoint: str) -> Opened:
        """The model of a checkpoint, from memory if it is cached and no file has changed."""
        name, _, step = checkpoint.rpartition("@")
        with self._reading(name) as path:
            if step in map(str, steps_of(path)):
                directory = find_step_directory(path, step)
                digest = sha256(directory / MANIFEST)
                with self._loading:
                    return self._models.get((checkpoint, digest), partial(_load, directory, digest))
        raise ConfigError("checkpoint", f"there is no {checkpoint!r}", "choose one that the page lists")

    # Texts

    def corpus(self, opened: Opened) -> Corpus | None:
        """The corpus that a model was trained on; None if it read no text, or its files are gone or have changed."""
        trained, fingerprint = opened.trained, opened.trained.data_fingerprint

        def build() -> Corpus:
            corpus = trained.corpus()
            if isinstance(corpus, Drawn):
                # The page asks for the same words again at each keystroke.
                corpus.language.words_on = lru_cache(MOST_WORDS)(corpus.language.words_on)  # type: ignore[method-assign]
            return corpus

        try:
            return self._corpora.get((trained.config.corpus.model_dump_json(), fingerprint), build)
        except CheckpointError as error:
            if fingerprint not in self._changed:
                _log.warning("%s; until then its page shows no truth and no held-out text", error)
            self._changed[fingerprint] = f"The truth is not shown: {error.what}; {error.fix}."
        except PellucidError:
            pass
        return None

    def why_no_truth(self, opened: Opened) -> str | None:
        """Why the truth that a model was trained on cannot be shown; None if it can, or was never known."""
        return self._changed.get(opened.trained.data_fingerprint) if self.corpus(opened) is None else None

    def known(self, opened: Opened) -> Drawn | KnownConversations | None:
        """The corpus, if it knows the truth about this model's tokens; the tokenizer must cut text into words."""
        corpus, tokenizer = self.corpus(opened), opened.tokenizer
        kind = KnownConversations if tokenizer.has_chat_tokens else Drawn
        return corpus if isinstance(corpus, kind) and tokenizer.has_words else None

    def examples(self, checkpoint: str) -> list[Json]:
        """A beginning of a held-out document for each skill, ending just before a token that takes it.

        The first, for a choice, ends where several tokens are likely. Where no truth is known: the first words of each.
        For a model that fills gaps, the documents, as the truth of gaps is known only of whole ones.
        """
        opened = self.open(checkpoint)
        corpus, tokenizer = self.known(opened), opened.tokenizer
        documents = self.held_out(checkpoint, FABLES_FOR_EXAMPLES)
        begins = str if opened.fills_gaps else _first_words
        beginnings = [{"skill": None, "text": begins(text)} for text in documents]
        if opened.fills_gaps or not isinstance(corpus, Drawn):
            return beginnings
        shortest: dict[str, str] = {}
        with self.grammar:
            is_open = open_beginning(corpus.language, tokenizer, documents[0]) if documents else None
            for text in documents:
                ids = tokenizer.encode(text)
                n_before = min(LEAST_TOKENS_BEFORE, len(ids) // 2)
                for t, counts_S in enumerate(skill_characters(corpus.language, tokenizer, text)):
                    for skill, count in zip(corpus.language.skills, counts_S, strict=True):
                        if count and n_before <= t < opened.model.context_length - 1 and skill != SPELLING:
                            before = tokenizer.decode(ids[:t])
                            shortest[skill] = min(shortest.get(skill, before), before, key=len)
        shortest = {CHOICE: is_open} | shortest | {CHOICE: is_open} if is_open else shortest
        return [{"skill": skill, "text": text} for skill, text in shortest.items()] or beginnings

    def fable(self, checkpoint: str, number: int) -> Json:
        """The number-th held-out document, from 1."""
        documents = self.held_out(checkpoint, number)
        if number > len(documents):
            what = f"{len(documents)} documents are held out here, there is no number {number}"
            raise ConfigError("fable", what, "type a text")
        return {"number": number, "text": documents[number - 1]}

    def held_out(self, checkpoint: str, n: int) -> list[str]:
        """The first n held-out documents, or all if there are fewer; cut to the context, except for conversations."""
        opened = self.open(checkpoint)
        corpus, length = self.corpus(opened), opened.model.context_length
        if corpus is None:
            return []

        def begin() -> tuple[list[str], Iterator[str]]:
            if isinstance(corpus, ConversationCorpus) and opened.tokenizer.has_chat_tokens:
                return [], map(_marked, corpus.conversations("validation"))
            return [], (document.text for document in validation_documents(corpus, opened.tokenizer, length))

        with self.grammar:
            documents, further = self._documents.get(opened.reading, begin)
            documents += islice(further, max(0, n - len(documents)))
            return documents[:n]


def open_beginning(language: Language, tokenizer: Tokenizer, text: str) -> str | None:
    """The first words of a document up to where several tokens may come, one of them likelier; None if nowhere."""
    ids = tokenizer.encode(text)
    least, most = LIKELIEST
    for t, p in enumerate(truth_of_text(language, tokenizer, text).distributions[: len(ids)]):
        if t >= min(LEAST_TOKENS_BEFORE, len(ids) // 2) and p and least <= max(p.values()) <= most:
            return tokenizer.decode(ids[:t])
    return None


def named(paths: Sequence[Path]) -> dict[str, Path]:
    """The runs at these paths by the names of their folders; a second one of the same name becomes NAME-2."""
    runs: dict[str, Path] = {}
    for path in map(Path.resolve, paths):
        name, number = folder_of(path).name, 1
        while name in runs:
            number += 1
            name = f"{folder_of(path).name}-{number}"
        runs[name] = path
    return runs


@contextmanager
def _errors_by_name(name: str, path: Path) -> Iterator[None]:
    """Inside, the files of a run are read. What is wrong with them names the run: no client need know its folder."""
    try:
        yield
    except (PellucidError, OSError) as error:
        known = explained(error)
        assert isinstance(known, PellucidError)
        kind = CheckpointError if isinstance(known, (ConfigError, DataError)) else type(known)  # not the client's fault
        raise kind(*(part.replace(str(folder_of(path)), name) for part in known.args)) from None


def _present(path: Path) -> Path:
    """The path. Raises CheckpointError if no folder is there."""
    if not path.is_dir():
        raise CheckpointError(str(path), "this folder is gone", "restore it and try again")
    return path


def _load(directory: Path, digest: str) -> Opened:
    trained = load_trained_model(directory)
    reads = f"{trained.tokenizer.to_json()}{trained.config.model_dump_json()}{trained.data_fingerprint}"
    reading = hashlib.sha256(reads.encode()).hexdigest()
    precision = precision_here(trained.config.train.device, trained.config.train.precision)
    return Opened(digest, reading, trained, trained.model.to(precision.device).eval())


def _first_words(text: str, n: int = 12) -> str:
    """The first words of a text; for a conversation, the whole question and the first words of the answer."""
    question, mark, answer = text.partition(ASSISTANT) if ASSISTANT in text else ("", "", text)
    beginning = re.match(rf"(\s*\S+){{0,{n}}}", answer)
    assert beginning
    return question + mark + beginning.group()


def _marked(turns: Sequence[Turn]) -> str:
    """A conversation as text, with the control tokens of the chat template spelled out."""
    return "".join(f"{TOKEN_OF_ROLE[turn.role]}{turn.text}{END_OF_TURN}" for turn in turns)
