"""Measures of a run besides its loss: skills on other texts, and answers to instructions.

What a single experiment measures stands in the NAME.py beside its YAML, which may use what is here.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from pellucid.config.model import DecoderConfig, ModelConfig
from pellucid.config.run import RunConfig
from pellucid.corpora.build import build_corpus
from pellucid.corpora.corpus import Piece
from pellucid.corpora.drawn import Drawn
from pellucid.data.batches import Batch, evaluation_batches
from pellucid.data.in_memory import pieces_as_tokens
from pellucid.data.prepared import PreparedData
from pellucid.data.soft_targets import SoftTargets, distributions_of
from pellucid.data.token_file import TokenFile
from pellucid.data.token_truth import TokenTruth
from pellucid.data.truth import truth_of_texts
from pellucid.errors import ConfigError, DataError
from pellucid.evaluation.loss import evaluation_of, score
from pellucid.experiments.results import Skills
from pellucid.model.build import build_model
from pellucid.model.language_model import LanguageModel
from pellucid.objectives.distillation import SoftBatch, from_truth
from pellucid.runs.evaluate_run import answers_of_run
from pellucid.runtime.precision import Precision
from pellucid.trained import TrainedModel


@dataclass(frozen=True)
class TrainedRun:
    """A run to be measured: the trained model on its device, its data, and the configs of its other texts."""

    trained: TrainedModel
    data: PreparedData
    precision: Precision
    texts: Mapping[str, RunConfig]

    @property
    def config(self) -> RunConfig:
        return self.trained.config


@dataclass(frozen=True)
class OtherText:
    """The held-out documents of another corpus, as the run's tokens, and the model with a context for the longest."""

    name: str
    corpus: Drawn
    model: LanguageModel
    tokens: TokenFile
    batches: Sequence[tuple[Batch, NDArray[np.int64]]]  # with the places of their tokens
    truth: TokenTruth


def require_texts(configs: Mapping[str, RunConfig]) -> None:
    """Raise DataError, with the text's name, if a language has too few documents to hold any out."""
    for name, config in configs.items():
        try:
            next(iter(build_corpus(config.corpus).pieces("validation")))
        except DataError as error:
            raise DataError(f"measures.texts.{name}", error.what, error.fix) from error


def other_texts(run: TrainedRun) -> Iterator[OtherText]:
    """The texts of `measures.texts`, whose documents may be longer than the context in training.

    Texts too long for learned positions are left out. Raises ConfigError for tokens that the training text lacks, and
    CheckpointError if the run's own corpus, which they vary, has changed since training.
    """
    trained = run.trained
    if run.texts:
        trained.corpus()
    for name, config in run.texts.items():
        corpus = build_corpus(config.corpus)
        assert isinstance(corpus, Drawn)
        texts = [piece.text for piece in corpus.pieces("validation")]
        tokens = pieces_as_tokens(name, [Piece(text, ends_document=True) for text in texts], trained.tokenizer)
        if new := np.setdiff1d(tokens.tokens, run.data.train.tokens).tolist():
            what = f"{trained.tokenizer.decode(new[:1])!r} and perhaps other tokens are not in the training text"
            raise ConfigError(f"measures.texts.{name}", what, "change no key that brings new symbols")
        length = max(trained.model.context_length, int(np.diff(tokens.boundaries).max()))
        if has_learned_positions(config.model) and length > config.model.context_length:
            continue
        nats, characters = zip(*truth_of_texts(corpus.language, trained.tokenizer, iter(texts)), strict=True)
        truth = TokenTruth(tuple(corpus.language.skills), np.concatenate(nats), np.concatenate(characters))
        model = with_context_length(trained, length).to(run.precision.device)
        batches = list(evaluation_batches(tokens, length, config.train.batch_size, from_document_starts=True))
        yield OtherText(name, corpus, model, tokens, batches, truth)


def on_other_texts(run: TrainedRun) -> dict[str, Skills]:
    """Excess and accuracy of each skill on the other texts, by the text's name."""
    skills = {}
    for text in other_texts(run):
        scores = score(text.model, text.batches, run.precision)
        evaluation = evaluation_of(scores, text.tokens, run.trained.tokenizer, text.truth)
        assert evaluation.skills is not None
        skills[text.name] = evaluation.skills.to_json()
    return skills


def divergence_from_truth(run: TrainedRun, n: int) -> float:
    """KL(p || q) of the next token in n new documents of the run's language, in nats per token.

    Its mean over documents is the excess, but it is exact at each place: what was drawn there adds no noise.
    """
    corpus, tokenizer, model = run.trained.corpus(), run.trained.tokenizer, run.trained.model
    assert isinstance(corpus, Drawn)
    texts = corpus.fresh(n, seed=0)
    known = (p for text in texts for p in distributions_of(corpus.language, tokenizer, text))
    targets = SoftTargets.of(known, tokenizer.vocab_size)
    tokens = pieces_as_tokens("new documents", [Piece(text, ends_document=True) for text in texts], tokenizer)
    batches = evaluation_batches(tokens, model.context_length, 32, from_document_starts=True)
    total = 0.0
    with torch.inference_mode():
        for batch, places_BT in batches:
            soft = SoftBatch(*batch, *map(torch.from_numpy, targets.at(places_BT))).to(run.precision.device)
            total += float(from_truth(run.precision.computing(model), soft).sum)
    return total / tokens.n_targets


def with_context_length(trained: TrainedModel, length: int) -> LanguageModel:
    """The model with another context length; of learned positions it keeps the first ones."""
    config = trained.config.model.model_copy(update={"context_length": length})
    model = build_model(config, trained.model.vocab_size)
    weights = trained.model.state_dict()
    if has_learned_positions(config):
        weights["positions.positions_TD"] = weights["positions.positions_TD"][:length]
    model.load_state_dict(weights)
    return model.eval()


def has_learned_positions(config: ModelConfig) -> bool:
    return isinstance(config, DecoderConfig) and config.position.type == "learned"


def answers_to_instructions(run: TrainedRun, n: int) -> dict[str, float | None]:
    """Figures of one answer to each of n held-out instructions: shares of complete, obeying, distinct ones; reward.

    kl: nats per answer from the model that the run started from; None if that knew no instructions.
    """
    table = answers_of_run(run.trained, run.precision, n)
    shares = {"whole": table.whole["all"].value, "obeys": table.obeys["all"].value, "distinct": table.distinct}
    return {**shares, "reward": table.reward, "kl": table.kl}
