"""What the page shows, computed from the checkpoints of a run; nothing is computed twice.

A checkpoint is named RUN@STEP. Its traces are kept by the hash of its files and the tokens read, so a run that is
trained again is never shown with old numbers. One forward pass goes at a time: a trace listens inside the model.

Shapes: N points of the residual stream, L layers, H heads, T positions as queries, S as keys, V vocabulary.
"""

from __future__ import annotations

import copy
import hashlib
import math
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

import torch

from pellucid.checkpoint.build import TrainedModel, load_trained_model
from pellucid.checkpoint.run_directory import find_step_directory, run_of, step_directories
from pellucid.checkpoint.step_directory import MANIFEST, STEP_NAME
from pellucid.config.load import load_run_config
from pellucid.config.run import RunConfig
from pellucid.corpora.build import build_corpus
from pellucid.corpora.corpus import SPELLING, Corpus, KnownCorpus, Piece
from pellucid.data.truth import Distribution, skill_characters
from pellucid.errors import CheckpointError, ConfigError, PellucidError
from pellucid.evaluation.attribution import attribute
from pellucid.evaluation.build import fables_of
from pellucid.evaluation.explain import beginning_that_fits, token_text, validation_documents
from pellucid.evaluation.explain_truth import truth_of_text
from pellucid.evaluation.head_scores import head_scores
from pellucid.evaluation.interventions import Place, places_of
from pellucid.evaluation.knock_out import held_out_fables, knock_out_table
from pellucid.evaluation.trace import Trace, trace
from pellucid.model.decoder import Decoder
from pellucid.runtime.precision import precision_here
from pellucid.tokenizer import Tokenizer
from pellucid.training.metrics import read_rows
from pellucid.web.tensors import DType, packed

Json = dict[str, Any]
T_ = TypeVar("T_")

KEPT_MODELS, KEPT_TRACES, KEPT_WORDS = 16, 64, 4096
FABLES_FOR_EXAMPLES = 6
NOT_BEGUN: Json = {  # of a run whose folder holds no config yet
    "loss_unit": "nats per token",
    "steps": None,
    "context_length": None,
    "best": None,
    "checkpoints": [],
    "knows_truth": False,
    "has_chat": False,
}
LEAST_TOKENS_BEFORE = 24  # an example that asks for a name said before should be long enough to have said one


@dataclass(frozen=True)
class Opened:
    """A checkpoint in memory. `digest` changes with any byte of it."""

    digest: str
    trained: TrainedModel
    model: Decoder

    @property
    def tokenizer(self) -> Tokenizer:
        return self.trained.tokenizer


class Microscope:
    """The runs that one server shows. Raises PellucidError where a run, a checkpoint or a text cannot be shown."""

    def __init__(self, runs: Sequence[Path]) -> None:
        self._runs: dict[str, Path] = {}
        for path in runs:
            run = path.resolve()
            name = _folder(run).name
            same = sum(each.rstrip("0123456789").rstrip("-") == name for each in self._runs)
            self._runs[f"{name}-{same + 1}" if same else name] = run
        self.folders = {name: _folder(run) for name, run in self._runs.items()}
        self._models: Kept[Opened] = Kept(KEPT_MODELS)
        self._traces: Kept[Trace] = Kept(KEPT_TRACES)
        self._truths: Kept[Json] = Kept(KEPT_TRACES)
        self._measured: Kept[Json] = Kept(KEPT_TRACES)
        self._corpora: dict[str, Corpus | None] = {}
        self._documents: dict[str, tuple[list[str], Iterator[Piece]]] = {}
        self._forward, self._grammar, self._loading = Lock(), Lock(), Lock()

    # What there is

    def run(self) -> Json:
        """The runs, their models in figures, and their checkpoints, oldest first."""
        return {"runs": [self._described(name, _present(path)) for name, path in self._runs.items()]}

    def _described(self, name: str, path: Path) -> Json:
        if not (path / "config.yaml").exists():
            return {"name": name, **NOT_BEGUN}
        config = self._config(path)
        losses = {row["step"]: row.get("val_loss") for row in self._rows(path)}
        steps = self._steps(path)
        evaluated = {step: float(loss) for step in steps if (loss := losses.get(step)) is not None}
        return {
            "name": name,
            "loss_unit": config.loss_unit,
            "steps": getattr(config.train, "steps", None),
            "knows_truth": isinstance(self._corpus(name), KnownCorpus),
            "has_chat": config.corpus.type in ("instructions", "chat"),
            "context_length": config.model.context_length,
            "best": f"{name}@{min(evaluated, key=lambda step: evaluated[step])}" if evaluated else None,
            "checkpoints": [{"id": f"{name}@{step}", "step": step, "val_loss": losses.get(step)} for step in steps],
        }

    def metrics(self, name: str) -> list[Json]:
        """The rows of metrics.jsonl."""
        return self._rows(self._path(name))

    def model(self, checkpoint: str) -> Json:
        """The model in figures, and its vocabulary: text and bytes of each token, and the pair that it was made of."""
        opened = self._open(checkpoint)
        tokenizer = opened.tokenizer
        ids = range(tokenizer.vocab_size)
        merges = [[rank, id_, *pair] for rank, (id_, pair) in enumerate(tokenizer.merges.items(), start=1)]
        return {
            "n_parameters": sum(parameter.numel() for parameter in opened.model.parameters()),
            "n_layers": opened.model.n_layers,
            "vocab_size": tokenizer.vocab_size,
            "context_length": opened.model.context_length,
            "end_of_text": tokenizer.end_of_text,
            "stop_ids": list(tokenizer.stop_ids),
            "texts": [token_text(tokenizer, id_) for id_ in ids],
            "bytes": [tokenizer.token_bytes(id_).hex(" ") for id_ in ids],
            "merges": merges,
        }

    def examples(self, checkpoint: str) -> list[Json]:
        """Beginnings of held-out documents that end just before a token that takes a skill, one for each skill."""
        opened, corpus = self._open(checkpoint), self._corpus(_run_of(checkpoint))
        if corpus is None:
            return []
        tokenizer, length = opened.tokenizer, opened.model.context_length
        documents = self.held_out(checkpoint, FABLES_FOR_EXAMPLES)
        if not isinstance(corpus, KnownCorpus):
            return [{"skill": None, "text": _first_words(text)} for text in documents]
        shortest: dict[str, str] = {}
        with self._grammar:
            for text in documents:
                ids = tokenizer.encode(text)
                for t, counts_S in enumerate(skill_characters(corpus, tokenizer, text)):
                    for skill, count in zip(corpus.skills, counts_S, strict=True):
                        if count and LEAST_TOKENS_BEFORE <= t < length - 1 and skill != SPELLING:
                            before = tokenizer.decode(ids[:t])
                            shortest[skill] = min(shortest.get(skill, before), before, key=len)
        return [{"skill": skill, "text": text} for skill, text in shortest.items()]

    def fable(self, checkpoint: str, number: int) -> Json:
        """The number-th held-out document, from 1."""
        documents = self.held_out(checkpoint, number)
        if not 1 <= number <= len(documents):
            what = f"{len(documents)} documents are held out here, there is no number {number}"
            raise ConfigError("fable", what, "type a text")
        return {"number": number, "text": documents[number - 1]}

    def held_out(self, checkpoint: str, n: int) -> list[str]:
        """The first n held-out documents, or all if there are fewer; of each as much as fits. They are read once."""
        opened, name = self._open(checkpoint), _run_of(checkpoint)
        with self._grammar:
            if name not in self._documents:
                corpus, length = self._corpus(name), opened.model.context_length
                further = validation_documents(corpus, opened.tokenizer, length) if corpus else iter(())
                self._documents[name] = [], further
            known, further = self._documents[name]
            known += (document.text for document in islice(further, max(0, n - len(known))))
        return known[:n]

    # What the model computes for a text

    def trace(
        self,
        checkpoint: str,
        text: str,
        at: int | None = None,
        knock_out: Sequence[Place] = (),
        patch_text: str | None = None,
    ) -> Json:
        """Attention, surprise and the logit lens at all positions, and the logits at one of them.

        Places that are knocked out give nothing or, with patch_text, what they gave for that text.
        """
        traced, shown = self._trace(checkpoint, text, knock_out, patch_text)
        log_q_NTV = traced.logits.float().log_softmax(-1)
        own_end_TV = log_q_NTV[-1]
        best_NT = log_q_NTV.max(dim=-1)
        kl_NT = (own_end_TV.exp() * (own_end_TV - log_q_NTV)).sum(-1).clamp(min=0)
        following = torch.tensor(traced.ids[1:], dtype=torch.long)
        return {
            "checkpoint": checkpoint,
            "text": shown,
            "is_cut": shown != text,
            "ids": traced.ids,
            "points": traced.points,
            "attention": packed(traced.attention, "float16"),
            "surprise": packed(-own_end_TV[:-1].gather(-1, following[:, None])[:, 0]),
            "lens": {
                "ids": packed(best_NT.indices, "int32"),
                "probabilities": packed(best_NT.values.exp()),
                "kl": packed(kl_NT),
            },
            **self._logits_at(traced, at),
        }

    def logits(
        self,
        checkpoint: str,
        text: str,
        at: int | None = None,
        knock_out: Sequence[Place] = (),
        patch_text: str | None = None,
    ) -> Json:
        """Only the logits at one position, after each point: a click on a token needs no more."""
        return self._logits_at(self._trace(checkpoint, text, knock_out, patch_text)[0], at)

    def _logits_at(self, traced: Trace, at: int | None) -> Json:
        last = len(traced.ids) - 1
        place = last if at is None else min(at, last)
        return {"at": place, "logits": packed(traced.logits[:, place])}

    def _trace(
        self, checkpoint: str, text: str, knock_out: Sequence[Place], patch_text: str | None = None
    ) -> tuple[Trace, str]:
        opened = self._open(checkpoint)
        tokenizer = opened.tokenizer
        shown = beginning_that_fits(tokenizer, text, opened.model.context_length - 1)
        ids = [tokenizer.end_of_text, *tokenizer.encode(shown)]
        key = (opened.digest, tuple(ids), tuple(map(tuple, knock_out)), patch_text)

        def compute() -> Trace:
            if patch_text is None:
                changes: Json = {"knock_out": knock_out}
            else:
                changes = {"patch": dict.fromkeys(knock_out, self._trace(checkpoint, patch_text, ())[0])}
            with self._forward:
                return trace(opened.model, ids, **changes)

        return self._traces.get(key, compute), shown

    def traced(self, checkpoint: str, text: str) -> tuple[Opened, Trace]:
        """For the exported page, which holds more than answers: the model, and its trace of the text."""
        return self._open(checkpoint), self._trace(checkpoint, text, ())[0]

    def inside(
        self,
        checkpoint: str,
        text: str,
        layer: int,
        knock_out: Sequence[Place] = (),
        patch_text: str | None = None,
        dtype: DType = "float32",
    ) -> Json:
        """What one layer computed, step by step."""
        steps = self._trace(checkpoint, text, knock_out, patch_text)[0].inside(layer)
        return {"steps": [{**step._asdict(), "values": packed(step.values, dtype)} for step in steps]}

    def heads(self, checkpoint: str) -> Json:
        """What each head looks at where random tokens are read twice, and the name that follows."""
        opened = self._open(checkpoint)

        def compute() -> Json:
            with self._forward:
                return {"heads": [each.to_json() for each in head_scores(opened.model, opened.tokenizer)]}

        return self._measured.get(("heads", opened.digest), compute)

    def knock_out(self, checkpoint: str, n: int) -> Json:
        """What each skill loses on n held-out fables without each head and sublayer, and where the heads look."""
        opened = self._open(checkpoint)

        def compute() -> Json:
            corpus = fables_of(opened.trained, "knock_out")
            with self._forward:  # no trace changes the model while it is copied
                model = copy.deepcopy(opened.model)  # so that traces need not wait for it
            fables = held_out_fables(corpus, opened.tokenizer, model.context_length, n)
            try:
                attribution = attribute(model, opened.tokenizer, corpus, fables)
            except ConfigError:  # weights that are no shares: what is lost without a head is known all the same
                attribution = None
            costs = {head.costs.places[0]: head.costs for head in attribution.heads} if attribution else {}
            others = [[place] for place in places_of(model) if place not in costs]
            table = knock_out_table(model, fables, corpus.skills, others)
            costs |= {row.places[0]: row for row in table.rows}
            table = replace(table, rows=[costs[place] for place in places_of(model)])
            return {**table.to_json(), "attribution": attribution and attribution.to_json()}

        return self._measured.get(("knock out", opened.digest, n), compute)

    # What is true

    def truth(self, checkpoint: str, text: str) -> Json:
        """The exact distribution of the next token at each position, where the corpus knows it."""
        opened, corpus = self._open(checkpoint), self._corpus(_run_of(checkpoint))
        if not isinstance(corpus, KnownCorpus):
            return {"known": False}
        shown = beginning_that_fits(opened.tokenizer, text, opened.model.context_length - 1)
        key = (_run_of(checkpoint), opened.tokenizer.vocab_size, shown)

        def compute() -> Json:
            with self._grammar:
                return _truth(corpus, opened.tokenizer, shown)

        return self._truths.get(key, compute)

    # What lies below

    def _path(self, name: str) -> Path:
        if name not in self._runs:
            raise ConfigError("run", f"there is no {name!r} here", f"choose one of {', '.join(self._runs)}")
        return _present(self._runs[name])

    def _rows(self, path: Path) -> list[Json]:
        return read_rows(_folder(path) / "metrics.jsonl")

    def _steps(self, path: Path) -> list[int]:
        """Those whose weights are here, of checkpoints and of snapshots."""
        directories = [path] if STEP_NAME.fullmatch(path.name) else step_directories(path)
        return sorted({int(each.name.removeprefix("step-")) for each in directories})

    def _config(self, path: Path) -> RunConfig:
        return load_run_config(path / "config.yaml")

    def _corpus(self, name: str) -> Corpus | None:
        """The run's corpus; None if it has none, or its files are gone."""
        if name not in self._corpora:
            try:
                corpus = build_corpus(self._config(self._path(name)).corpus)
            except PellucidError:
                corpus = None
            if isinstance(corpus, KnownCorpus):
                # What may come after a beginning is asked again at each keystroke.
                corpus.words_on = lru_cache(KEPT_WORDS)(corpus.words_on)  # type: ignore[method-assign]
            self._corpora[name] = corpus
        return self._corpora[name]

    def _open(self, checkpoint: str) -> Opened:
        directory = self._directory(checkpoint)
        digest = hashlib.sha256((directory / MANIFEST).read_bytes()).hexdigest()
        with self._loading:
            return self._models.get((checkpoint, digest), partial(_load, directory, digest))

    def _directory(self, checkpoint: str) -> Path:
        name, _, step = checkpoint.rpartition("@")
        path = self._path(name)
        if step not in map(str, self._steps(path)):
            raise ConfigError("checkpoint", f"there is no {checkpoint!r}", "choose one that the page lists")
        return find_step_directory(path, step)


class Kept(OrderedDict[Hashable, T_]):
    """The last few things computed, by key."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most, self._lock = most, Lock()

    def get(self, key: Hashable, compute: Callable[[], T_]) -> T_:  # type: ignore[override]
        with self._lock:
            if key in self:
                self.move_to_end(key)
                return self[key]
        value = compute()
        with self._lock:
            self[key] = value
            while len(self) > self._most:
                self.popitem(last=False)
        return value


def _present(path: Path) -> Path:
    """The same path. Raises CheckpointError as long as nothing is there."""
    if not path.is_dir():
        raise CheckpointError(str(path), "this folder is gone", "bring it back, and the page goes on")
    return path


def _folder(path: Path) -> Path:
    """The run's, of a run or of one of its checkpoints."""
    return run_of(path) if STEP_NAME.fullmatch(path.name) else path


def _load(directory: Path, digest: str) -> Opened:
    trained = load_trained_model(directory)
    if not isinstance(trained.model, Decoder):
        what = "this kind of model has no attention and no residual stream"
        raise ConfigError("model.type", what, "show a run of type decoder")
    precision = precision_here(trained.config.train.device, trained.config.train.precision)
    return Opened(digest, trained, trained.model.to(precision.device).eval())


def _truth(corpus: KnownCorpus, tokenizer: Tokenizer, text: str) -> Json:
    truth = truth_of_text(corpus, tokenizer, text)
    ids = tokenizer.encode(text)
    positions = [None if p is None else {"ids": list(p), "p": list(p.values())} for p in truth.distributions]
    skills = None
    if truth.is_whole:
        counts_TS = skill_characters(corpus, tokenizer, text)[: len(ids)]
        skills = [[name for name, n in zip(corpus.skills, counts_S, strict=True) if n] for counts_S in counts_TS]
    return {
        "known": True,
        "ids": [tokenizer.end_of_text, *ids],
        "positions": positions,
        "floor": [_surprise(p, id_) for p, id_ in zip(truth.distributions, ids, strict=False)],
        "entropy": [None if p is None else _entropy(p) for p in truth.distributions],
        "possible_length": truth.possible_length,
        "is_possible": truth.is_possible,
        "is_whole": truth.is_whole,
        "next_characters": dict(truth.next_characters),
        "skills": skills,
    }


def _surprise(p: Distribution | None, id_: int) -> float | None:
    """−log p of the token; None where it is unknown or impossible."""
    return -math.log(p[id_]) if p is not None and p.get(id_) else None


def _entropy(p: Mapping[int, float]) -> float:
    return max(0.0, -math.fsum(each * math.log(each) for each in p.values() if each))


def _run_of(checkpoint: str) -> str:
    return checkpoint.rpartition("@")[0]


def _first_words(text: str, n: int = 12) -> str:
    return " ".join(text.split()[:n])
