"""A run from a run: the weights of another run to begin with, and whether they fit."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from pellucid.checkpoint.build import config_of
from pellucid.checkpoint.run_directory import steps_in
from pellucid.checkpoint.step_directory import MODEL_FILE, STEP_NAME, Checkpoint, Tensors, read_checkpoint, step_name
from pellucid.checkpoint.training_state import first_not_finite, load_model_tensors
from pellucid.config.base import flat
from pellucid.config.model import DecoderConfig, LearnedConfig, ModelConfig
from pellucid.config.run import RunConfig
from pellucid.errors import CheckpointError, ConfigError
from pellucid.files import sha256
from pellucid.model.language_model import LanguageModel
from pellucid.tokenizer import Tokenizer

# What a model computes from the same weights does not depend on these: they say how it begins, learns or is computed.
FREE = {
    "dropout",
    "kernels",
    "embedding_std",
    "zero_init_projections",
    "copying_init",
    "counted",
    "feed_forward.load_balance_weight",
}
FULL_ATTENTION = {"auto", "explicit", "fused"}
BY_SHAPE = {"n_kv_heads", "d_ff", "head_width"}  # null may stand for the same number: the shapes of weights decide


@dataclass(frozen=True)
class Base:
    """The checkpoint to start from."""

    run: Path
    directory: Path
    checkpoint: Checkpoint

    def require_fit(self, config: RunConfig) -> None:
        """Raises ConfigError, naming the first knob that differs, if the config computes something else from them."""
        base = config_of(self.checkpoint, str(self.directory))
        if key := first_difference(base.model, config.model):
            theirs, ours = (flat(model.model_dump(mode="json")).get(key) for model in (base.model, config.model))
            what = f"{_shown(ours)} does not fit the weights of {self.run}, made with {_shown(theirs)}"
            raise ConfigError(f"model.{key}", what, "leave this key out: it is then that of the base run")

    def require_same_vocabulary(self, tokenizer: Tokenizer) -> None:
        """Raises ConfigError if ids mean other text than they did to the base run. Control tokens may come after."""
        theirs = Tokenizer.from_json(self.checkpoint.tokenizer_json, f"{self.directory}/tokenizer.json")
        if tokenizer.to_json() not in (theirs.to_json(), theirs.with_chat_tokens().to_json()):
            what = (
                f"this vocabulary ({tokenizer.vocab_size:,} tokens) is not that of {self.run} ({theirs.vocab_size:,})"
            )
            raise ConfigError("tokenizer", what, "leave out the section `tokenizer`: it is then that of the base run")

    def load_into(self, model: LanguageModel, seed: int) -> None:
        """Copies the weights, and nothing else. CheckpointError, naming a tensor, if one has another shape.

        Tokens that the base does not know get vectors drawn from the `seed`. A scalar head that only one has stays
        as it is, or is left behind.
        """
        now = dict(model.named_parameters())
        tensors = with_new_tokens(self.checkpoint.model, now, seed)
        heads = {name: now.get(name) for name in tensors.keys() | now.keys() if name.startswith("scalar_head.")}
        without = {name: tensor for name, tensor in tensors.items() if name not in heads}
        kept = {name: tensors.get(name, own) for name, own in heads.items() if own is not None}
        load_model_tensors(model, {**without, **kept}, str(self.directory))

    @property
    def sha256(self) -> str:
        """Of its weights: what a run that still needs them remembers."""
        return sha256(self.directory / MODEL_FILE)


def read_same_base(run: Path, digest: str) -> Base:
    """The checkpoint of the run whose weights have this SHA-256. CheckpointError if it is gone."""
    directories = [run] if STEP_NAME.fullmatch(run.name) else [run / step_name(step) for step in steps_in(run)]
    for directory in directories:
        if (directory / MODEL_FILE).is_file() and sha256(directory / MODEL_FILE) == digest:
            return read_base(directory)
    what = "the weights that this run started from, and still needs, are no longer here"
    raise CheckpointError(str(run), what, "bring that checkpoint back, or train again with --overwrite")


def read_base(directory: Path) -> Base:
    """Reads it whole. Raises CheckpointError if it is damaged."""
    checkpoint = read_checkpoint(directory)
    if (culprit := first_not_finite(checkpoint.model)) is not None:
        raise CheckpointError(str(directory), f"{culprit} holds NaN or infinity", "start from an older checkpoint")
    return Base(directory.parent, directory, checkpoint)


def with_new_tokens(base: Tensors, now: Tensors, seed: int) -> Tensors:
    """The base's tensors; where a table of token vectors has more rows now, the new ones are drawn to be like the old.

    So new tokens are as likely as others, and differ from each other. (The mean of all rows alone would make them
    equal; Hewitt 2021.)
    """
    generator = torch.Generator().manual_seed(seed)
    grown = dict(base)
    for name in sorted(base.keys() & now.keys()):
        n_new = now[name].size(0) - base[name].size(0) if name.endswith("embedding_VD") else 0
        if n_new > 0:
            old_VD = base[name].float()
            noise_VD = torch.randn(n_new, old_VD.size(1), generator=generator)
            new_VD = old_VD.mean(dim=0) + old_VD.std(dim=0) * noise_VD
            grown[name] = torch.cat([base[name], new_VD.to(base[name].dtype)])
    return grown


def first_difference(base: ModelConfig, now: ModelConfig) -> str | None:
    """The first knob by which two models compute different things from the same weights."""
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
