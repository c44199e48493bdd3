"""From a step directory to a model ready for use, its tokenizer and its config."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pellucid.checkpoint.run_directory import find_step_directory
from pellucid.checkpoint.step_directory import Checkpoint, read_checkpoint
from pellucid.checkpoint.training_state import load_model_tensors, require_fit
from pellucid.config.load import parse_run_config
from pellucid.config.run import RunConfig
from pellucid.errors import CheckpointError, ConfigError, DataError
from pellucid.model.build import build_model
from pellucid.model.language_model import LanguageModel
from pellucid.runtime.precision import Precision, precision_here
from pellucid.tokenizer import Tokenizer

OTHER_VERSION = "use the version of Pellucid that wrote it"


@dataclass(frozen=True)
class TrainedModel:
    """Everything generation and evaluation need from a checkpoint."""

    config: RunConfig
    tokenizer: Tokenizer
    model: LanguageModel
    step: int
    data_fingerprint: str


def load_trained_model(step_directory: Path) -> TrainedModel:
    """Checks a step directory and reads it into CPU memory.

    Raises CheckpointError if it is damaged or its weights do not fit its config.
    """
    return _build(read_checkpoint(step_directory), str(step_directory))


def load_trained_run(run: Path, which: str = "best") -> tuple[TrainedModel, Precision]:
    """The model that RUN and best|latest|STEP name, on the device and in the precision that it was trained with.

    A machine without these uses what it has, after a warning. Raises CheckpointError as the others do.
    """
    trained = load_trained_model(find_step_directory(run, which))
    precision = precision_here(trained.config.train.device, trained.config.train.precision)
    trained.model.to(precision.device)
    return trained, precision


def verify(step_directory: Path) -> None:
    """Raises CheckpointError unless hashes, shapes and numbers are those that a resumed run needs."""
    checkpoint = read_checkpoint(step_directory)
    require_fit(_build(checkpoint, str(step_directory)).model, checkpoint, str(step_directory))


def config_of(checkpoint: Checkpoint, where: str) -> RunConfig:
    """The config that the run was trained with. Raises CheckpointError if this version cannot read it.

    A vocabulary that came from a file is the checkpoint's own: that file may be gone, or the run elsewhere.
    """
    try:
        config = parse_run_config(checkpoint.config_yaml, f"{where}/config.yaml")
    except ConfigError as error:
        raise CheckpointError(error.where, error.what, OTHER_VERSION) from None
    return with_own_tokenizer(config, Path(where))


def with_own_tokenizer(config: RunConfig, folder: Path) -> RunConfig:
    """The same config; if its vocabulary comes from a file, from the one that lies in this folder."""
    if config.tokenizer.type != "file":
        return config
    own = config.tokenizer.model_copy(update={"path": (folder / "tokenizer.json").as_posix()})
    return config.model_copy(update={"tokenizer": own})


def _build(checkpoint: Checkpoint, where: str) -> TrainedModel:
    config = config_of(checkpoint, where)
    try:
        tokenizer = Tokenizer.from_json(checkpoint.tokenizer_json, f"{where}/tokenizer.json")
    except DataError as error:
        raise CheckpointError(error.where, error.what, OTHER_VERSION) from None
    model = build_model(config.model, tokenizer.vocab_size, scalar_head=config.has_scalar_head)
    load_model_tensors(model, checkpoint.model, where)
    state = checkpoint.state
    return TrainedModel(config, tokenizer, model.eval(), state.step, state.data_fingerprint)
