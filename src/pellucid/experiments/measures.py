"""What an experiment can measure of a run besides its loss."""

from __future__ import annotations

from itertools import chain, islice
from typing import Any

from torch import nn

from pellucid.checkpoint.build import TrainedModel
from pellucid.config.experiment import WritingConfig
from pellucid.config.generation import WayConfig
from pellucid.config.model import DecoderConfig, ModelConfig
from pellucid.config.run import RunConfig
from pellucid.corpora.build import build_corpus
from pellucid.corpora.fables import FablesCorpus
from pellucid.data.build import PreparedData, build_batches
from pellucid.errors import ConfigError
from pellucid.evaluation.build import answers_of_run, evaluate
from pellucid.evaluation.written import judge
from pellucid.generation.build import build_sampling
from pellucid.generation.text import generate_text, search_text
from pellucid.model.build import build_model
from pellucid.model.language_model import LanguageModel
from pellucid.runtime.precision import Precision
from pellucid.training.build import build_trainer


def at_context_lengths(
    trained: TrainedModel, data: PreparedData, precision: Precision, lengths: tuple[int, ...]
) -> list[tuple[int, float]]:
    """(length, nats per token): the loss on the whole validation part at context lengths other than the trained one.

    The nats are the excess over the floor or, where the floor is unknown, the loss. A length beyond the learned
    positions is left out: the model has no weights for it.
    """
    found = []
    for length in lengths:
        if has_learned_positions(trained.config.model) and length > trained.config.model.context_length:
            continue
        decoder = with_context_length(trained, length).to(precision.device)
        evaluation = evaluate(trained.config, data, decoder, precision)
        excess = evaluation.excess_nats_per_token
        found.append((length, evaluation.loss_nats_per_token if excess is None else excess))
    return found


def with_context_length(trained: TrainedModel, length: int) -> LanguageModel:
    """A model with these weights and another context length. If positions are learned, it keeps the first ones."""
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
    """What the grammar says of the texts written in each way, by its label, and of as many true fables.

    Every text goes on from the first sentence of a held-out fable; in each way of the same ones.
    """
    corpus = build_corpus(trained.config.corpus)
    if not isinstance(corpus, FablesCorpus):
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
    return {label: judge(corpus, each).to_json() for label, each in texts.items()}


def write(trained: TrainedModel, way: WayConfig, n_samples: int, seed: int, beginning: str) -> list[str]:
    """The samples, or the one text found, that begin like this and go on for at most as long as a context."""
    settings: dict[str, Any] = {"max_new_tokens": trained.model.context_length}
    start = (trained.model, trained.tokenizer, beginning)
    if way.beams is not None:
        found = search_text(*start, n_beams=way.beams, length_penalty=way.length_penalty, **settings)
    else:
        n_samples = 1 if way.temperature == 0 else n_samples  # which would all be the same
        found = generate_text(*start, n_samples=n_samples, sampling=build_sampling(way), seed=seed, **settings)
    return [beginning + each.completion for each in found]


def answers_to_instructions(trained: TrainedModel, precision: Precision, n: int) -> dict[str, float | None]:
    """One answer to each of n held-out instructions: the share that is a whole fable, that obeys, that is new; rewards.

    kl: nats per answer from the model that the run started from; None if that one knew no instructions.
    """
    trained.model.to(precision.device)
    table = answers_of_run(trained, precision, n)
    shares = {"whole": table.whole["all"].value, "obeys": table.obeys["all"].value, "distinct": table.distinct}
    return {**shares, "reward": table.reward, "kl": table.kl}


def first_gradient_norms(config: RunConfig, data: PreparedData) -> list[float]:
    """The norm of the loss's gradient in each block before any update, first block first; other models have none.

    The loss is the mean of the first micro-batch, the weights are those that the run's seed draws.
    """
    trainer, _ = build_trainer(config, data)
    model, device = trainer.model, trainer.precision.device
    assert isinstance(model, LanguageModel)
    batch = build_batches(config, data).batch(0).to(device)
    loss = trainer.objective(trainer.logits, batch)
    ((loss.sum + loss.penalty) / loss.count).backward()  # type: ignore[no-untyped-call]
    gradients = ([weight.grad for weight in block.parameters() if weight.grad is not None] for block in model.blocks)
    return [float(nn.utils.get_total_norm(each)) for each in gradients]
