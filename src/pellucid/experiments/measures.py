"""What an experiment can measure of a run besides its loss."""

from __future__ import annotations

from torch import nn

from pellucid.checkpoint.build import TrainedModel
from pellucid.config.model import DecoderConfig, ModelConfig
from pellucid.config.run import RunConfig
from pellucid.data.batches import Batch
from pellucid.data.build import PreparedData, build_batches
from pellucid.evaluation.build import evaluate
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
    """The same weights in a decoder that reads another number of tokens; of learned positions, the first ones."""
    config = trained.config.model.model_copy(update={"context_length": length})
    model = build_model(config, trained.model.vocab_size)
    weights = trained.model.state_dict()
    if has_learned_positions(config):
        weights["positions.positions_TD"] = weights["positions.positions_TD"][:length]
    model.load_state_dict(weights)
    return model.eval()


def has_learned_positions(config: ModelConfig) -> bool:
    return isinstance(config, DecoderConfig) and config.position.type == "learned"


def first_gradient_norms(config: RunConfig, data: PreparedData) -> list[float]:
    """The norm of the loss's gradient in each block before any update, first block first; other models have none.

    The loss is the mean of the first micro-batch, the weights are those that the run's seed draws.
    """
    trainer = build_trainer(config, data)
    model, device = trainer.model, trainer.precision.device
    assert isinstance(model, LanguageModel)
    batch = Batch(*(tensor.to(device) for tensor in build_batches(config, data).batch(0)))
    loss = trainer.objective(trainer.logits, batch)
    ((loss.sum + loss.penalty) / loss.count).backward()  # type: ignore[no-untyped-call]
    gradients = ([weight.grad for weight in block.parameters() if weight.grad is not None] for block in model.blocks)
    return [float(nn.utils.get_total_norm(each)) for each in gradients]
