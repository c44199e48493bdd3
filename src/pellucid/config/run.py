"""A complete run: everything that decides what is trained, in the order of the data's way through the code."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator
from pydantic.config import JsonDict

from pellucid.config.base import JSON_SCHEMA, Section
from pellucid.config.data import CONVERSATIONS, BytePairConfig, CorpusConfig, DataConfig, TokenizerConfig
from pellucid.config.generation import SampleConfig
from pellucid.config.model import DecoderConfig, ExpertsConfig, ModelConfig, with_type
from pellucid.config.post_training import (
    GRPOConfig,
    LoRAConfig,
    NextTokenConfig,
    ObjectiveConfig,
    PairsSection,
    Quantization,
)
from pellucid.config.shipped import find_run
from pellucid.config.training import CheckpointConfig, EvaluationConfig, OptimizerConfig, ScheduleConfig, TrainConfig
from pellucid.files import RUNS_ROOT

NEEDS_REFERENCE = ("dpo", "grpo", "ppo")
NEEDS_DECODER = ("reward_model", "dpo", "grpo", "ppo")
LEARNS_FROM_PAIRS = ("reward_model", "dpo")
CORPORA_OF_OBJECTIVE = {
    "sft": ("instructions", "conversations"),
    "reward_model": ("instructions", "preferences"),
    "dpo": ("instructions", "preferences"),
    "grpo": ("instructions",),
    "ppo": ("instructions",),
}


def for_editors(schema: JsonDict) -> None:
    """What the validation of a file does before: a run that starts from another needs no model of its own."""
    required = schema["required"]
    assert isinstance(required, list)
    required.remove("model")
    schema.update({**JSON_SCHEMA, "anyOf": [{"required": ["model"]}, {"required": ["start_from"]}]})


class RunConfig(Section, json_schema_extra=for_editors):
    """One training run. `pellucid train` reads it from YAML and writes it, complete, beside the weights."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="the run is saved in checkpoints/<name>")
    start_from: str | None = Field(
        None,
        min_length=1,
        description="RUN, RUN@best, RUN@latest or RUN@STEP: begin with the weights of that run, which also gives "
        "`tokenizer`, `quantization` and the keys of `model` that are left out",
    )
    seed: int = Field(0, ge=0, lt=2**63, description="decides the initial weights, data order and dropout")
    corpus: CorpusConfig
    tokenizer: TokenizerConfig = BytePairConfig(type="bpe")
    data: DataConfig = DataConfig()
    model: Annotated[ModelConfig, BeforeValidator(with_type)]
    quantization: Quantization = Field(
        "none", description="format of frozen weights: of a run by `pellucid quantize`, or of an adapter's base"
    )
    adapter: LoRAConfig | None = Field(None, description="what is trained beside the frozen weights of `start_from`")
    objective: ObjectiveConfig = NextTokenConfig(type="next_token")
    optimizer: OptimizerConfig
    schedule: ScheduleConfig
    train: TrainConfig
    evaluation: EvaluationConfig = EvaluationConfig()
    sample: SampleConfig = SampleConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    trackers: Annotated[tuple[Literal["tensorboard", "wandb"], ...], Field(strict=False)] = Field(
        (), description="also show the rows of metrics.jsonl there; each needs its package (docs/ecosystem.md)"
    )

    @property
    def base_run(self) -> tuple[Path, str] | None:
        """The run to start from, and which of its checkpoints."""
        return None if self.start_from is None else run_and_checkpoint(self.start_from)

    @property
    def has_scalar_head(self) -> bool:
        """Whether the decoder also gives each token a number: a reward, or a value."""
        return self.objective.type in ("reward_model", "ppo")

    @property
    def reads_text(self) -> bool:
        """Whether the text of the corpus is learned, or only what is said of answers."""
        return self.objective.type in ("next_token", "sft")

    @property
    def loss_unit(self) -> str:
        """What to write after a loss of this run."""
        if self.reads_text:
            return "nats per token"
        return "nats per pair" if self.objective.type in LEARNS_FROM_PAIRS else "= -(reward - beta KL)"

    @property
    def rows_per_micro_batch(self) -> int:
        """How many rows the model learns from at once: `train.batch_size` may count pairs, or groups of answers."""
        if self.objective.type in LEARNS_FROM_PAIRS:
            return 2 * self.train.batch_size
        return self.train.batch_size * (self.objective.group_size if isinstance(self.objective, GRPOConfig) else 1)

    @property
    def tokens_per_step(self) -> int:
        """Positions that an update sees, at most: a batch of documents is as wide as its longest row."""
        return self.rows_per_micro_batch * self.train.gradient_accumulation_steps * self.model.context_length

    @model_validator(mode="after")
    def _has_blocks_to_recompute(self) -> RunConfig:
        if self.train.gradient_checkpointing and self.model.type != "decoder":
            what = f"the {self.model.type} has no blocks to recompute"
            raise ValueError(f"train.gradient_checkpointing: {what}; leave it out, or use model.type decoder")
        return self

    @model_validator(mode="after")
    def _compiles_no_experts(self) -> RunConfig:
        model = self.model
        if self.train.compile and isinstance(model, DecoderConfig) and isinstance(model.feed_forward, ExpertsConfig):
            what = "a compiled graph has fixed shapes, and an expert gets as many tokens as ask it"
            raise ValueError(f"train.compile: {what}; leave it out, or use model.feed_forward dense")
        return self

    @model_validator(mode="after")
    def _compiles_no_scalar_head(self) -> RunConfig:
        if self.train.compile and self.has_scalar_head:
            what = f"the graph would leave out the scalar head, which {self.objective.type} trains"
            raise ValueError(f"train.compile: {what}; leave it out")
        return self

    @model_validator(mode="after")
    def _has_what_its_objective_learns_from(self) -> RunConfig:
        objective = self.objective.type
        if self.corpus.type == "preferences" and objective not in LEARNS_FROM_PAIRS:
            what = f"preferences are pairs of answers, from which {objective} does not learn"
            raise ValueError(f"corpus.type: {what}; use objective {' or '.join(LEARNS_FROM_PAIRS)}")
        if self.corpus.type in CONVERSATIONS and objective == "next_token":
            what = f"{self.corpus.type} are conversations, of which the answers alone are learned"
            raise ValueError(f"corpus.type: {what}; add `objective: {{type: sft}}`")
        if self.corpus.type not in CONVERSATIONS and objective != "next_token" and self.corpus.type != "none":
            what = f"{self.corpus.type} holds no conversations for objective {objective} to learn from"
            raise ValueError(f"corpus.type: {what}; use {' or '.join(CORPORA_OF_OBJECTIVE[objective])}")
        if self.corpus.type == "conversations" and objective != "sft":
            what = f"conversations have one answer to each question, and nobody to judge others for {objective}"
            raise ValueError(f"corpus.type: {what}; use objective sft, or corpus instructions or preferences")
        if (
            self.corpus.type == "preferences"
            and isinstance(self.objective, PairsSection)
            and self.objective.needs_places
        ):
            what = "fork and cut need the token where an answer went wrong, which nobody knows of answers from a file"
            raise ValueError(f"objective: {what}; set fork to false and cut to none, or use corpus instructions")
        if self.corpus.type == "instructions" and objective == "reward_model" and self.start_from is None:
            what = "reward_model compares answers, and start_from names no model to write them"
            raise ValueError(f"objective.type: {what}; add `start_from: RUN`, or use corpus preferences")
        if objective in NEEDS_DECODER and self.model.type != "decoder":
            raise ValueError(
                f"objective.type: {objective} trains a decoder, not a {self.model.type}; use model.type decoder"
            )
        if objective in NEEDS_REFERENCE and self.start_from is None:
            what = f"{objective} compares the model with the one it starts from, and start_from names none"
            raise ValueError(f"objective.type: {what}; add `start_from: RUN`")
        if self.adapter is not None and self.start_from is None:
            raise ValueError("adapter: there are no weights to freeze; add `start_from: RUN`, or leave out the adapter")
        if not self.reads_text and self.train.parallel == "fsdp":
            raise ValueError(f"train.parallel: fsdp cannot be combined with objective {objective}; use ddp or auto")
        experts = self.model.feed_forward if isinstance(self.model, DecoderConfig) else None
        if not self.reads_text and isinstance(experts, ExpertsConfig) and experts.load_balance_weight:
            what = f"the loss of {objective} has no part for how the experts are asked"
            raise ValueError(f"model.feed_forward.load_balance_weight: {what}; set it to 0")
        return self

    @model_validator(mode="after")
    def _warmup_ends_before_training(self) -> RunConfig:
        if self.schedule.warmup_steps > self.train.steps:
            raise ValueError(
                f"schedule.warmup_steps: {self.schedule.warmup_steps} is longer than train.steps "
                f"{self.train.steps}; warm up for fewer steps"
            )
        return self


def run_and_checkpoint(start_from: str) -> tuple[Path, str]:
    """`checkpoints/base@500` is step 500 of the run checkpoints/base; without `@` it is the best step."""
    run, at, which = start_from.rpartition("@")
    named, which = (run, which) if at and run and "/" not in which else (start_from, "best")
    return find_run(Path(named)), which


def run_meant_by(run: Path) -> Path | None:
    """For a path where nothing is: the run of that name where runs are written, or one that is spelled alike."""
    if (RUNS_ROOT / run).is_dir():
        return RUNS_ROOT / run
    folders = {path.name: path for root in (RUNS_ROOT, run.parent) if root.is_dir() for path in root.iterdir()}
    close = difflib.get_close_matches(run.name, [name for name, path in folders.items() if path.is_dir()], n=1)
    return folders[close[0]] if close else None
