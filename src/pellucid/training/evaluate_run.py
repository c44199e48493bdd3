"""Evaluation of a trained model on held-out data, by the task it was trained for."""

from pathlib import Path

from pellucid.checkpoint.build import TrainedModel
from pellucid.checkpoint.step_directory import read_checkpoint
from pellucid.config.run import LEARNS_FROM_PAIRS
from pellucid.evaluation.build import data_of_trained, evaluate_on_own_text
from pellucid.model.build import build_model_of_run
from pellucid.objectives.task import Validation
from pellucid.runtime.precision import Precision
from pellucid.training.build import build_task
from pellucid.training.start_from import base_of


def evaluate_run(
    trained: TrainedModel,
    precision: Precision,
    data_root: Path,
    directory: Path,
    where: str,
    n_answers: int | None = None,
) -> Validation:
    """Results on the validation data: the loss of its text, and its answers (see `evaluation/build.py`).

    For reward models and preferences: how well the model knows the better of two answers. DPO needs for that the
    weights that it started from, which its step directory (`directory`) names. CheckpointError, at `where`: gone.
    """
    config = trained.config
    knows_pairs = config.objective.type == "reward_model" or config.corpus.type == "preferences"
    if config.objective.type not in LEARNS_FROM_PAIRS or not knows_pairs or n_answers:
        return evaluate_on_own_text(trained, precision, data_root, where, n_answers)
    data, first = data_of_trained(trained, data_root, where), trained.model
    if base := base_of(config, (read_checkpoint(directory), directory)):
        first = build_model_of_run(config, data.tokenizer.vocab_size)
        base.load_into(first, config)
        first.to(precision.device)
    return build_task(config, data, first, precision).evaluate(trained.model, None)
