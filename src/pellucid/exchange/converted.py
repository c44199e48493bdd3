"""Conversions of a run: its adapter merged into the weights, or its weights quantized."""

import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pellucid.adapters.quantized import Format, bits_per_weight, linear_layers, n_quantized, quantize
from pellucid.checkpoint.step_directory import Checkpoint
from pellucid.checkpoint.training_state import OF_TASK, first_not_finite, model_tensors
from pellucid.config.load import run_config_to_yaml
from pellucid.errors import CheckpointError, ConfigError
from pellucid.exchange.folders import require_empty, write_run
from pellucid.trained import TrainedModel, find_checkpoint, trained_model, with_own_tokenizer


@dataclass(frozen=True)
class Sizes:
    """Bits per weight, before and after quantization, of the quantized layers and of the whole model."""

    quantized_weights: int
    bits_before: float
    bits_after: float
    weights: int
    model_bits_before: float
    model_bits_after: float

    def table(self) -> str:
        from pellucid.tables import table

        rows = [
            ("linear layers inside blocks", self.quantized_weights, self.bits_before, self.bits_after),
            ("the whole model", self.weights, self.model_bits_before, self.model_bits_after),
        ]
        cells = [(name, f"{n:,}", f"{before:.3f}", f"{after:.3f}") for name, n, before, after in rows]
        return table(("bits for each weight", "weights", "before", "after"), cells)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def merge_run(run: Path, directory: Path, *, which: str = "best") -> None:
    """Write a run with the adapter merged into the weights of its base, and nothing quantized.

    Raises ConfigError if there is nothing to merge or the folder is not empty, CheckpointError for a damaged run.
    """
    _, saved, trained = _loaded(run, directory, which)
    if trained.config.adapter is None and trained.config.quantization == "none":
        raise ConfigError(str(run), "no adapter to merge: its weights are plain", "use the run as it is")
    _write(trained, saved, directory, {"adapter": None, "quantization": "none"})


def quantize_run(run: Path, directory: Path, to: Format, *, which: str = "best") -> Sizes:
    """Write a run whose linear layers inside blocks are quantized, after merging any adapter.

    Raises as `merge_run` does; ConfigError also if the weights are already quantized, or none of them can be.
    """
    step_directory, saved, trained = _loaded(run, directory, which)
    model, config = trained.model, trained.config
    if config.quantization != "none" and config.adapter is None:
        what = f"its weights are {config.quantization} already"
        raise ConfigError(str(run), what, "quantize the run that it was made of: rounding twice costs twice")
    layers = linear_layers(model)
    if not layers:
        raise ConfigError("model.type", f"{config.model.type} has no linear layer inside blocks", "quantize a decoder")
    if (culprit := first_not_finite(model_tensors(model))) is not None:
        raise CheckpointError(str(step_directory), f"{culprit} holds NaN or infinity", "use an older checkpoint")
    n_bytes_of_layers = sum(layer.weight.nbytes for layer in layers.values())
    before = model_tensors(model).values()
    n_weights, bytes_before = sum(tensor.numel() for tensor in before), sum(tensor.nbytes for tensor in before)
    quantize(model, to)
    bytes_after = sum(tensor.nbytes for tensor in model_tensors(model).values())
    _write(trained, saved, directory, {"adapter": None, "quantization": to}, val_loss=None, best_loss=None)
    return Sizes(
        quantized_weights=n_quantized(model),
        bits_before=8 * n_bytes_of_layers / n_quantized(model),
        bits_after=bits_per_weight(model),
        weights=n_weights,
        model_bits_before=8 * bytes_before / n_weights,
        model_bits_after=8 * bytes_after / n_weights,
    )


def _loaded(run: Path, directory: Path, which: str) -> tuple[Path, Checkpoint, TrainedModel]:
    """The step directory, the checkpoint without model and optimizer, and the model, with its adapter merged."""
    require_empty(Path(os.path.abspath(directory)))
    checkpoint, step_directory = find_checkpoint(run, which)
    return step_directory, replace(checkpoint, model={}, optimizer={}), trained_model(checkpoint, step_directory)


def _write(trained: TrainedModel, saved: Checkpoint, directory: Path, changes: dict[str, Any], **of_state: Any) -> None:
    """Write a checkpoint that a new run may start from, but that cannot be resumed.

    Its config keeps `start_from`, to show where the weights came from.
    """
    config = with_own_tokenizer(trained.config.model_copy(update=changes), directory)
    state = saved.state.model_copy(update={"unreported": None, "logs": {}, **of_state})
    generators = {name: tensor for name, tensor in saved.rng.items() if not name.startswith(OF_TASK)}
    config_yaml, tensors = run_config_to_yaml(config), model_tensors(trained.model)
    checkpoint = Checkpoint(tensors, {}, generators, state, config_yaml, saved.tokenizer_json, saved.is_snapshot)
    write_run(Path(os.path.abspath(directory)), checkpoint)
