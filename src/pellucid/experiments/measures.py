"""Measures of a run besides its loss."""

from collections.abc import Mapping, Sequence
from itertools import chain, islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pellucid.config.experiment import WritingConfig
from pellucid.config.generation import WayConfig
from pellucid.config.model import DecoderConfig, ModelConfig
from pellucid.config.run import RunConfig
from pellucid.corpora.build import build_corpus
from pellucid.corpora.corpus import Piece
from pellucid.corpora.drawn import Drawn
from pellucid.data.batches import evaluation_batches
from pellucid.data.prepared import PreparedData, pieces_as_tokens
from pellucid.data.truth import TokenTruth, truth_of_texts
from pellucid.errors import ConfigError, DataError
from pellucid.evaluation.loss import Scores, evaluation_of, score
from pellucid.evaluation.written import judge
from pellucid.experiments.results import Skills
from pellucid.generation.build import build_sampling
from pellucid.generation.text import generate_text, search_text
from pellucid.inspection.beliefs import read_beliefs
from pellucid.languages.brackets import Brackets
from pellucid.languages.chains import Chains, Strategy
from pellucid.languages.fables import Fables
from pellucid.languages.hidden import Hidden
from pellucid.model.build import build_model
from pellucid.model.language_model import LanguageModel
from pellucid.recipe import build_batches, build_trainer, evaluate
from pellucid.runs.evaluate_run import answers_of_run
from pellucid.runtime.precision import Precision
from pellucid.trained import TrainedModel

N_DOCUMENTS_OF_BELIEFS = 1000


def at_context_lengths(
    trained: TrainedModel, data: PreparedData, precision: Precision, lengths: tuple[int, ...]
) -> list[tuple[int, float]]:
    """Pairs (length, nats per token): excess, or loss if the floor is unknown, of the model at other context lengths.

    Evaluated on the whole validation part. A length beyond learned positions is left out: they have no weights there.
    """
    results = []
    for length in lengths:
        if has_learned_positions(trained.config.model) and length > trained.config.model.context_length:
            continue
        decoder = with_context_length(trained, length).to(precision.device)
        evaluation = evaluate(trained.config, data, decoder, precision)
        excess = evaluation.excess_nats_per_token
        results.append((length, evaluation.loss_nats_per_token if excess is None else excess))
    return results


def require_texts(configs: Mapping[str, RunConfig]) -> None:
    """Raise DataError, naming the text, if the language of one has too few documents to hold any out."""
    for name, config in configs.items():
        try:
            next(iter(build_corpus(config.corpus).pieces("validation")))
        except DataError as error:
            raise DataError(f"measures.texts.{name}", error.what, error.fix) from error


def on_other_texts(
    trained: TrainedModel, data: PreparedData, precision: Precision, configs: Mapping[str, RunConfig]
) -> dict[str, Skills]:
    """Excess and accuracy of each skill on the held-out documents of other corpora, by name, as these tokens.

    A document may be longer than the context in training. Where learned positions have no weights for it, the text is
    left out. Brackets also get `kind`; see `right_kinds`. ConfigError for tokens that the training text has not;
    CheckpointError if the run's own corpus, which they vary, has changed since training.
    """
    found = {}
    if configs:
        trained.corpus()
    for name, config in configs.items():
        corpus = build_corpus(config.corpus)
        assert isinstance(corpus, Drawn)
        texts = [piece.text for piece in corpus.pieces("validation")]
        tokens = pieces_as_tokens(name, [Piece(text, ends_document=True) for text in texts], trained.tokenizer)
        if new := np.setdiff1d(tokens.tokens, data.train.tokens).tolist():
            what = f"{trained.tokenizer.decode(new[:1])!r} and perhaps other tokens are not in the training text"
            raise ConfigError(f"measures.texts.{name}", what, "change no key that brings new symbols")
        length = max(trained.model.context_length, int(np.diff(tokens.boundaries).max()))
        if has_learned_positions(config.model) and length > config.model.context_length:
            continue
        nats, characters = zip(*truth_of_texts(corpus.language, trained.tokenizer, iter(texts)), strict=True)
        truth = TokenTruth(tuple(corpus.language.skills), np.concatenate(nats), np.concatenate(characters))
        model = with_context_length(trained, length).to(precision.device)
        batches = list(evaluation_batches(tokens, length, config.train.batch_size, from_document_starts=True))
        evaluation = evaluation_of(score(model, batches, precision), tokens, trained.tokenizer, truth)
        assert evaluation.skills is not None
        found[name] = evaluation.skills.to_json()
        if isinstance(corpus.language, Brackets):
            closing = [trained.tokenizer.encode(f" {symbol}")[-1] for _, symbol in corpus.language.kinds]
            scores = score(Among(model, closing), batches, precision)
            for skill, share in right_kinds(scores, np.isin(tokens.tokens[scores.places + 1], closing), truth).items():
                found[name][skill]["kind"] = share
    return found


class Among(nn.Module):
    """A model that chooses among these tokens alone: all others get probability 0."""

    def __init__(self, model: nn.Module, token_ids: Sequence[int]) -> None:
        super().__init__()
        self.model, self.token_ids = model, list(token_ids)

    def forward(self, inputs_BT: Tensor) -> Tensor:
        logits_BTV: Tensor = self.model(inputs_BT)
        excluded_V = torch.full_like(logits_BTV[0, 0], -torch.inf)
        excluded_V[self.token_ids] = 0
        return logits_BTV + excluded_V


def right_kinds(scores: Scores, closes_N: NDArray[np.bool_], truth: TokenTruth) -> dict[str, float]:
    """How often the right kind is the likeliest of the brackets that close, by skill.

    All places count where one closes, also those where one might have opened. Hewitt et al. (2020) ask for more: that
    the right kind has over 80 % of the probability of all brackets that close.
    """
    shares_NS = truth.shares(scores.places[closes_N])
    n_S, n_right_S = shares_NS.sum(axis=0), scores.hits[closes_N] @ shares_NS
    return {skill: float(n_right_S[s] / n_S[s]) for s, skill in enumerate(truth.skills) if n_S[s]}


def at_each_place(trained: TrainedModel, data: PreparedData, precision: Precision) -> dict[str, list[float]]:
    """Mean nats of the tokens at each place of the held-out documents: of the model, and of the truth if it is known.

    For chains also those of a reader who guesses evenly, or by how often each symbol came so far. The end of a document
    is left out.
    """
    tokens, config, model = data.validation, trained.config, trained.model.to(precision.device)
    batches = evaluation_batches(tokens, model.context_length, config.train.batch_size, from_document_starts=True)
    scores = score(model, batches, precision)
    goes_on = tokens.tokens[scores.places + 1] != trained.tokenizer.end_of_text
    at = scores.places[goes_on]
    places = at - tokens.boundaries[np.searchsorted(tokens.boundaries, at, side="right") - 1]
    nats_by = {"model": scores.nats[goes_on], **({} if data.truth is None else {"truth": data.truth.nats[at]})}
    found = {who: (np.bincount(places, nats) / np.bincount(places)).tolist() for who, nats in nats_by.items()}
    corpus = trained.corpus()
    if isinstance(corpus, Drawn) and isinstance(language := corpus.language, Chains):
        texts = list(corpus.documents("validation"))
        strategies: dict[str, Strategy] = {"by counts of symbols": "counts", "evenly": "evenly"}
        for name, strategy in strategies.items():
            nats = [list(language.nats_by_strategy(text, strategy)) for text in texts]
            if len(nats[0]) == len(found["model"]):  # each symbol is one token
                found[name] = np.mean(nats, axis=0).tolist()
    return found


def beliefs_in_each_layer(trained: TrainedModel, precision: Precision) -> dict[str, float]:
    """How much of the beliefs about the hidden state a linear map reads from each layer (R²), trained and untrained.

    For comparison: how much of them the last symbols tell.
    """
    corpus = trained.corpus()
    assert isinstance(corpus, Drawn)
    assert isinstance(corpus.language, Hidden)
    trained.model.to(precision.device)
    found: dict[str, float] = {}
    for name, model in (("", trained.model), ("untrained ", trained.untrained())):
        read = read_beliefs(model, trained.tokenizer, corpus.language, N_DOCUMENTS_OF_BELIEFS)
        found |= {f"{name}{layer}": read.explained(points) for layer, points in read.layers.items()}
    return found | {f"last {n}": read.explained(points) for n, points in read.last_symbols.items()}


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


def ways_to_write(
    trained: TrainedModel, precision: Precision, writing: WritingConfig
) -> dict[str, dict[str, float | None]]:
    """Judgements by the grammar of the texts written in each way, by its label, and of as many true fables.

    The texts continue the first sentences of held-out fables, the same ones in each way.
    """
    corpus = trained.corpus()
    if not isinstance(corpus, Drawn) or not isinstance(corpus.language, Fables):
        what = "measures.writing is for fables only"
        raise ConfigError(f"run {trained.config.name}", what, "leave it out: no grammar judges other texts")
    fables = list(islice(corpus.documents("validation"), writing.beginnings * writing.samples))
    beginnings = [fable[: fable.index(". ") + 1] for fable in fables[: writing.beginnings]]
    trained.model.to(precision.device)
    texts = {}
    with precision.for_decoding().autocast():
        for way in writing.ways:
            written = [write(trained, way, writing.samples, seed, text) for seed, text in enumerate(beginnings)]
            texts[way.label] = list(chain.from_iterable(written))
    texts["true fables"] = fables
    return {label: judge(corpus.language, texts_of_way).to_json() for label, texts_of_way in texts.items()}


def write(trained: TrainedModel, way: WayConfig, n_samples: int, seed: int, beginning: str) -> list[str]:
    """Texts with this beginning, at most a context long: samples, or the result of a search."""
    settings: dict[str, Any] = {"max_new_tokens": trained.model.context_length}
    start = (trained.model, trained.tokenizer, beginning)
    if way.beams is not None:
        completions = search_text(*start, n_beams=way.beams, length_penalty=way.length_penalty, **settings)
    else:
        n_samples = 1 if way.temperature == 0 else n_samples  # greedy samples would all be the same
        completions = generate_text(*start, n_samples=n_samples, sampling=build_sampling(way), seed=seed, **settings)
    return [beginning + completion.completion for completion in completions]


def answers_to_instructions(trained: TrainedModel, precision: Precision, n: int) -> dict[str, float | None]:
    """Figures of one answer to each of n held-out instructions: shares of complete, obeying, distinct ones; reward.

    kl: nats per answer from the model that the run started from; None if that knew no instructions.
    """
    trained.model.to(precision.device)
    table = answers_of_run(trained, precision, n)
    shares = {"whole": table.whole["all"].value, "obeys": table.obeys["all"].value, "distinct": table.distinct}
    return {**shares, "reward": table.reward, "kl": table.kl}


def first_gradient_norms(config: RunConfig, data: PreparedData) -> list[float]:
    """The norm of the initial gradient in each block, first block first; none for models without blocks.

    The loss is the mean of the first micro-batch, with the initial weights of the run's seed.
    """
    trainer, _ = build_trainer(config, data)
    model, device = trainer.model, trainer.precision.device
    assert isinstance(model, LanguageModel)
    batch = build_batches(config, data).batch(0).to(device)
    loss = trainer.objective(trainer.logits, batch)
    ((loss.sum + loss.penalty) / loss.count).backward()  # type: ignore[no-untyped-call]
    gradients = ([weight.grad for weight in block.parameters() if weight.grad is not None] for block in model.blocks)
    return [float(nn.utils.get_total_norm(of_block)) for of_block in gradients]
