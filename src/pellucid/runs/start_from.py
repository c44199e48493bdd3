"""Starting from another run's weights: finds them, and checks that they fit."""

from pathlib import Path

from pellucid.checkpoint.run_directory import find_step_directory
from pellucid.checkpoint.step_directory import Checkpoint
from pellucid.checkpoint.training_state import first_not_finite
from pellucid.config.base import flat
from pellucid.config.model import ONLY_FOR_TRAINING, DecoderConfig, LearnedConfig, ModelConfig
from pellucid.config.run import NEEDS_REFERENCE, RunConfig
from pellucid.errors import START_OVER, CheckpointError, ConfigError
from pellucid.tokenizer import Tokenizer
from pellucid.trained import Base, base_in, find_base

# Knobs that do not change what a model computes from given weights: they affect its start, training or speed.
FREE = ONLY_FOR_TRAINING | {"counted", "feed_forward.load_balance_weight"}
FULL_ATTENTION = {"explicit", "fused"}
BY_SHAPE = {"n_kv_heads", "d_ff", "head_width"}  # null may mean the same number: the weights' shapes decide


def needs_base(config: RunConfig) -> bool:
    """Whether a run needs the weights that it starts from throughout training, not only at its start."""
    writes_pairs = config.objective.type == "reward_model" and config.corpus.type == "instructions"
    return writes_pairs or config.adapter is not None or config.objective.type in NEEDS_REFERENCE


def base_of(config: RunConfig, resume_from: tuple[Checkpoint, Path] | None) -> Base | None:
    """The weights to start from; for a resumed run, only if it still needs them."""
    if config.base_run is None or (resume_from and not needs_base(config)):
        return None
    if resume_from:
        checkpoint, directory = resume_from
        if checkpoint.state.base_sha256 is None:
            raise CheckpointError(str(directory), "does not tell what it started from", START_OVER)
        base = read_base(find_base(config.base_run[0], checkpoint.state.base_sha256, directory))
    else:
        base = read_base(find_step_directory(*config.base_run))
    require_fit(base, config)
    return base


def read_base(directory: Path) -> Base:
    """Read a checkpoint to start from. Raises CheckpointError if it is damaged or holds NaN or infinity."""
    base = base_in(directory)
    if (culprit := first_not_finite(base.weights)) is not None:
        raise CheckpointError(str(directory), f"{culprit} holds NaN or infinity", "start from an older checkpoint")
    return base


def require_fit(base: Base, config: RunConfig) -> None:
    """Raise ConfigError, naming the first knob that differs, if the config's model does not suit the weights."""
    first = base.config
    if key := first_difference(first.model, config.model):
        theirs, ours = (flat(model.model_dump(mode="json")).get(key) for model in (first.model, config.model))
        what = f"{_shown(ours)} does not fit the weights of {base.run}, made with {_shown(theirs)}"
        raise ConfigError(f"model.{key}", what, "leave this key out: it is then that of the base run")
    if base.quantization not in ("none", config.quantization):
        what = f"{config.quantization} does not fit the weights of {base.run}, {base.quantization}"
        raise ConfigError("quantization", what, "leave it out: it is then that of the base run")


def require_same_vocabulary(base: Base, tokenizer: Tokenizer) -> None:
    """Raise ConfigError if ids mean other text than in the base run. Further control tokens are allowed."""
    theirs = base.tokenizer
    if tokenizer.to_json() not in (theirs.to_json(), theirs.with_chat_tokens().to_json()):
        what = f"this vocabulary ({tokenizer.vocab_size:,} tokens) is not that of {base.run} ({theirs.vocab_size:,})"
        raise ConfigError("tokenizer", what, "leave out the section `tokenizer`: it is then that of the base run")


def first_difference(base: ModelConfig, now: ModelConfig) -> str | None:
    """The first knob that makes two models compute different things from the same weights; None if there is none."""
    if base.type != now.type:
        return "type"
    before, after = flat(base.model_dump(mode="json")), flat(now.model_dump(mode="json"))
    free = set(FREE)
    if not isinstance(base, DecoderConfig) or not isinstance(base.position, LearnedConfig):
        free.add("context_length")
    if {str(before.get("attention")), str(after.get("attention"))} <= FULL_ATTENTION:
        free.add("attention")
    free |= {key for key in BY_SHAPE if None in (before.get(key), after.get(key))}
    return next((key for key in {**after, **before} if key not in free and before.get(key) != after.get(key)), None)


def _shown(value: object) -> str:
    return "null" if value is None else str(value)
