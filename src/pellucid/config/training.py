"""Knobs of training: optimizer, schedule, loop, evaluation, checkpoints, samples (`training/`, `checkpoint/`)."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from pellucid.config.base import Section

LearningRate = Annotated[float, Field(gt=0)]
Momentum = Annotated[float, Field(ge=0, lt=1)]
Betas = Annotated[tuple[Momentum, Momentum], Field(strict=False)]
Steps = Annotated[int, Field(ge=1)]


class AdamWConfig(Section):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019)."""

    type: Literal["adamw"]
    lr: LearningRate = 3e-4
    embedding_lr: LearningRate | None = Field(None, description="learning rate of embeddings; left out: lr")
    betas: Betas = (0.9, 0.95)
    eps: float = Field(1e-8, gt=0)
    weight_decay: float = Field(0.1, ge=0, description="applied to matrices only, not to biases and norms")
    l1: float = Field(0.0, ge=0, description="pull of each number in a matrix towards 0, which it reaches (lasso)")


class MuonConfig(Section):
    """Muon for the matrices of blocks and recurrent layers (Jordan et al. 2024), AdamW for all else."""

    type: Literal["muon"]
    lr: LearningRate = Field(0.02, description="learning rate of the matrices")
    momentum: Momentum = 0.95
    weight_decay: float = Field(0.0, ge=0, description="applied to matrices only, not to biases and norms")
    l1: float = Field(0.0, ge=0, description="pull of each number in a matrix towards 0, which it reaches (lasso)")
    adamw_lr: LearningRate = Field(3e-3, description="learning rate of embeddings, biases and norms")
    adamw_betas: Betas = (0.9, 0.95)
    adamw_eps: float = Field(1e-8, gt=0)


class SGDConfig(Section):
    """Stochastic gradient descent, with momentum."""

    type: Literal["sgd"]
    lr: LearningRate = 0.1
    momentum: Momentum = 0.9
    weight_decay: float = Field(0.0, ge=0, description="applied to matrices only, not to biases and norms")
    l1: float = Field(0.0, ge=0, description="pull of each number in a matrix towards 0, which it reaches (lasso)")


OptimizerConfig = Annotated[AdamWConfig | MuonConfig | SGDConfig, Field(discriminator="type")]


class WarmupSection(Section):
    warmup_steps: int = Field(0, ge=0, description="steps over which the learning rate rises from zero")


class ConstantConfig(WarmupSection):
    """Warmup, then the full learning rate to the end."""

    type: Literal["constant"]


class CosineConfig(WarmupSection):
    """Warmup, then half a cosine down to the final fraction."""

    type: Literal["cosine"]
    final_lr_fraction: float = Field(0.1, ge=0, le=1, description="learning rate at the end, as a share of lr")


class WarmupStableDecayConfig(WarmupSection):
    """Warmup, then constant, then a straight line down to the final fraction."""

    type: Literal["warmup_stable_decay"]
    decay_fraction: float = Field(0.3, gt=0, le=1, description="share of all steps spent on the way down")
    final_lr_fraction: float = Field(0.0, ge=0, le=1, description="learning rate at the end, as a share of lr")


ScheduleConfig = Annotated[ConstantConfig | CosineConfig | WarmupStableDecayConfig, Field(discriminator="type")]


Recomputed = Literal["none", "attention", "cheap", "block"]


def named_if_bool(recomputed: Any) -> Any:
    """true is block and false is none, as all configs once said."""
    if isinstance(recomputed, bool):
        return "block" if recomputed else "none"
    return recomputed


class TrainConfig(Section):
    """The training loop."""

    steps: int = Field(ge=1, description="number of updates")
    batch_size: int = Field(ge=1, description="rows per forward pass; halve it when memory runs out")
    gradient_accumulation_steps: int = Field(1, ge=1, description="forward passes per update: as many times the rows")
    max_gradient_norm: float | None = Field(1.0, gt=0, description="longer gradients are scaled down to it")
    gradient_checkpointing: Annotated[
        Recomputed, BeforeValidator(named_if_bool, json_schema_input_type=bool | Recomputed)
    ] = Field(
        "none",
        description="computed twice, not stored: attention's scores and weights; what is cheap, all but products with "
        "weights; or nearly all of a block, for a third more time; true is block, false none",
    )
    precision: Literal["auto", "fp32", "bf16", "fp16"] = Field(
        "auto", description="auto: bf16 where products in it are faster, else fp32; fp16 needs CUDA"
    )
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    parallel: Literal["auto", "none", "ddp", "fsdp"] = Field(
        "auto", description="several processes: each holds all weights (ddp) or a part (fsdp); auto: ddp"
    )
    processes: Literal["auto"] | Steps = Field(
        "auto", description="processes on this machine; auto: one per GPU, or one per core for longer runs on a CPU"
    )
    compile: bool = Field(False, description="torch.compile the model and its loss: slow start, faster steps on a GPU")
    log_every_steps: Steps = Field(10, description="steps between two rows of metrics.jsonl; snapshots have rows too")


class EvaluationConfig(Section):
    """Validation during training. At the end the whole validation part is evaluated."""

    every_steps: Steps = 500
    max_tokens: int | None = Field(100_000, ge=1, description="number of tokens to evaluate in training; null: all")
    stop_at_val_loss: float | None = Field(None, gt=0, description="end the run at this loss (nats per token) or less")
    early_stopping_patience: int | None = Field(None, ge=1, description="end after this many without a new best")


class CheckpointConfig(Section):
    """The checkpoints kept on disk. The last step and the best one are always saved."""

    every_steps: Steps = 1000
    keep_last: int = Field(2, ge=1, description="checkpoints kept, beside the one with the best loss")
    snapshots: int = Field(
        0, ge=0, description="number of steps from 0 to the last, denser at the start, of which to keep the weights"
    )


class DrawingConfig(Section):
    """Settings for drawing each token."""

    temperature: float = Field(1.0, ge=0, description="0 is greedy")
    top_k: int | None = Field(None, ge=1, description="keep only the k most likely tokens")
    top_p: float | None = Field(None, gt=0, le=1, description="keep the fewest tokens with this much probability")
    min_p: float | None = Field(None, ge=0, le=1, description="keep tokens with this share of the highest probability")
    repetition_penalty: float = Field(1.0, gt=0, description="above 1, what has occurred gets less likely")


class SampleConfig(DrawingConfig):
    """Sample texts, written to samples.md at intervals."""

    every_steps: int = Field(500, ge=1)
    n_samples: int = Field(2, ge=1)
    prompt: str = Field("", description="text that each sample continues; empty: the start of a document")
    max_new_tokens: int = Field(256, ge=1)
