"""Builds a session that is ready to run from a config and prepared data."""

import copy
from collections.abc import Callable
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from typing_extensions import assert_never

from pellucid.adapters.lora import merge, merged
from pellucid.checkpoint.snapshots import snapshot_steps
from pellucid.config.data import CONVERSATIONS
from pellucid.config.load import run_config_to_yaml
from pellucid.config.model import BigramConfig, DecoderConfig, ModelConfig
from pellucid.config.post_training import (
    DPOConfig,
    GRPOConfig,
    NextTokenConfig,
    PPOConfig,
    RewardModelConfig,
    SFTConfig,
)
from pellucid.config.run import RunConfig
from pellucid.config.training import (
    AdamWConfig,
    ConstantConfig,
    CosineConfig,
    MuonConfig,
    OptimizerConfig,
    ScheduleConfig,
    SGDConfig,
    WarmupStableDecayConfig,
)
from pellucid.corpora.build import build_corpus
from pellucid.corpora.corpus import ConversationCorpus
from pellucid.data.build import PreparedData, build_batches
from pellucid.data.pairs import count_pairs
from pellucid.errors import ConfigError, DataError
from pellucid.evaluation.build import evaluate
from pellucid.generation.build import build_sampling
from pellucid.generation.chat import Conversation
from pellucid.generation.text import generate_text
from pellucid.kernels.products import with_faster_products
from pellucid.model.bigram import Bigram
from pellucid.model.build import build_model_of_run
from pellucid.model.language_model import LanguageModel
from pellucid.model.recompute import recompute_activations
from pellucid.objectives.next_token import next_token, with_load_balance
from pellucid.objectives.objective import Objective
from pellucid.objectives.task import Task, Validation
from pellucid.runtime.distributed import ALONE, World
from pellucid.runtime.precision import Precision, resolve_precision
from pellucid.tokenizer import Tokenizer
from pellucid.tokenizer.chat import prompt_ids
from pellucid.training import optimizers, schedules
from pellucid.training.schedules import Schedule
from pellucid.training.session import Session
from pellucid.training.start_from import Base, needs_base
from pellucid.training.trackers import TensorBoard, Tracker, Trackers, WeightsAndBiases
from pellucid.training.trainer import Trainer


def build_session(
    config: RunConfig, data: PreparedData, run_dir: Path, world: World = ALONE, base: Base | None = None
) -> Session:
    """A session at step 0, with random weights from `config.seed`, or those of the base."""
    trainer, task = build_trainer(config, data, world, base)
    model = trainer.model
    assert isinstance(model, LanguageModel)
    if task.write_samples is None:
        write_samples = build_samples(config, data.tokenizer, trainer)
    else:
        write_samples = partial(task.write_samples, model, config.sample.n_samples)
    return Session(
        trainer=trainer,
        task=task,
        run_dir=run_dir,
        name=config.name,
        n_steps=config.train.steps,
        stop_at_val_loss=config.evaluation.stop_at_val_loss,
        patience=config.evaluation.early_stopping_patience,
        log_every=config.train.log_every_steps,
        evaluate_every=config.evaluation.every_steps,
        sample_every=config.sample.every_steps,
        save_every=config.checkpoint.every_steps,
        keep_last=config.checkpoint.keep_last,
        before_decay=step_before_decay(config.schedule, config.train.steps),
        snapshots_at=snapshot_steps(config.train.steps, config.checkpoint.snapshots),
        floor=data.validation_floor_nats_per_token if config.reads_text else None,
        validate=partial(task.evaluate, model, config.evaluation.max_tokens),
        write_samples=write_samples,
        config_yaml=run_config_to_yaml(config),
        tokenizer_json=data.tokenizer.to_json(),
        data_fingerprint=data.fingerprint,
        base_sha256=base.sha256 if base is not None and needs_base(config) else None,
        reward_sha256=task.reward_sha256,
        trackers=build_trackers(config, run_dir, world),
    )


def build_samples(config: RunConfig, tokenizer: Tokenizer, trainer: Trainer) -> Callable[[], list[str]]:
    """A function that writes samples: texts or, for a model that learns conversations, answers.

    Raises ConfigError now, and not at the first sample, if the vocabulary lacks a character of `sample.prompt`.
    """
    model, precision, sample = trainer.model, trainer.precision, config.sample
    assert isinstance(model, LanguageModel)
    options: dict[str, Any] = {
        "sampling": build_sampling(sample),
        "max_new_tokens": sample.max_new_tokens,
        "seed": config.seed,
    }
    questions = first_questions(config, tokenizer, model.max_positions, sample.n_samples)
    if not questions:
        try:
            tokenizer.encode(sample.prompt)
        except DataError as error:
            raise ConfigError("sample.prompt", error.what, "write it in the characters of the corpus") from None

    def answers() -> list[str]:
        with trainer.whole_model(), merged(model):
            conversations = [(question, Conversation(model, tokenizer, precision, **options)) for question in questions]
            return [f"**{question}**\n\n{conversation.ask(question)}" for question, conversation in conversations]

    def texts() -> list[str]:
        with trainer.whole_model(), merged(model), precision.for_decoding().autocast():
            completions = generate_text(model, tokenizer, sample.prompt, n_samples=sample.n_samples, **options)
        return [sample.prompt + completion.completion for completion in completions]

    return answers if questions else texts


def first_questions(config: RunConfig, tokenizer: Tokenizer, longest: int, n: int) -> list[str]:
    """The first `n` held-out questions of at most `longest` tokens; none unless the model learns conversations."""
    if config.corpus.type not in CONVERSATIONS:
        return []
    corpus = build_corpus(config.corpus)
    assert isinstance(corpus, ConversationCorpus)
    first = (turns[:1] for turns in corpus.conversations("validation"))
    return [turns[0].text for turns in islice((one for one in first if len(prompt_ids(tokenizer, one)) <= longest), n)]


def build_trackers(config: RunConfig, run_dir: Path, world: World = ALONE) -> Trackers:
    """The run's trackers, not opened yet; none on any rank but the first."""

    def opened(name: Literal["tensorboard", "wandb"], first_step: int) -> Tracker:
        match name:
            case "tensorboard":
                return TensorBoard(run_dir, run_config_to_yaml(config), first_step)
            case "wandb":
                return WeightsAndBiases(run_dir, config.name, config.model_dump(mode="json"))
            case _:
                assert_never(name)

    return Trackers({name: partial(opened, name) for name in config.trackers} if world.is_first else {})


def build_trainer(
    config: RunConfig, data: PreparedData, world: World = ALONE, base: Base | None = None
) -> tuple[Trainer, Task]:
    """The trainer (model, optimizers, schedule) and the task that a config describes."""
    train = config.train
    precision = resolve_precision(train.device, train.precision)
    torch.manual_seed(config.seed)
    model = build_model_of_run(config, data.tokenizer.vocab_size)
    is_counted = isinstance(config.model, BigramConfig) and config.model.counted and config.start_from is None
    if isinstance(model, Bigram) and is_counted:
        model.set_counts(torch.from_numpy(count_pairs(data.train, model.vocab_size)))
    if base is not None:
        base.load_into(model, config)
    model.to(precision.device)
    task = build_task(config, data, model, precision, world)
    recompute_activations(model.blocks, train.gradient_checkpointing)
    is_sharded = train.parallel == "fsdp" and world.size > 1
    if is_sharded:
        from pellucid.runtime.sharding import shard  # a second of imports

        if train.compile:  # block by block: a graph cannot span the gathering of parameters
            for block in model.blocks:
                block.compile()
        shard(model, model.blocks)
    trainer = Trainer(
        model,
        choose_forward(config, model, precision, is_sharded),
        build_optimizers(config.optimizer, model, precision, world),
        build_schedule(config.schedule, train.steps),
        task.get_batch,
        precision,
        objective=task.objective,
        batch_size=train.batch_size,
        gradient_accumulation_steps=train.gradient_accumulation_steps,
        max_gradient_norm=train.max_gradient_norm,
        seed=config.seed,
        world=world,
        is_sharded=is_sharded,
    )
    return trainer, task


def build_task(
    config: RunConfig, data: PreparedData, model: LanguageModel, precision: Precision, world: World = ALONE
) -> Task:
    """The run's task. The model already has its initial weights, which some objectives use as the reference."""

    def evaluate_text(model: LanguageModel, max_tokens: int | None) -> Validation:
        return evaluate(config, data, model, precision, max_tokens, world)

    objective = config.objective
    match objective:
        case NextTokenConfig() | SFTConfig():
            batches = build_batches(config, data)
            next_token_of_model = choose_objective(config.model, model, **objective.model_dump(exclude={"type"}))
            return Task(lambda i, rows: batches.batch(i).part(rows), next_token_of_model, evaluate_text)
        case RewardModelConfig() | DPOConfig():
            from pellucid.post_training.build import learning_from_pairs  # not needed for pretraining

            return learning_from_pairs(objective, config, data, model, frozen_copy(model), precision, world)
        case GRPOConfig() | PPOConfig():
            from pellucid.post_training.build import learning_from_answers

            reference = frozen_copy(model)
            return learning_from_answers(objective, config, data.tokenizer, model, reference, precision, world)
        case _:
            assert_never(objective)


def frozen_copy(model: LanguageModel) -> LanguageModel:
    """A frozen copy of the model, the reference; adapters are merged into its layers, for speed."""
    reference = copy.deepcopy(model)
    merge(reference)
    return reference.requires_grad_(False).eval()


def choose_forward(
    config: RunConfig, model: nn.Module, precision: Precision, is_sharded: bool
) -> Callable[[Tensor], Tensor]:
    """The function that computes logits in training: the model, compiled or with another engine for its products."""
    if config.train.compile and not is_sharded:
        return torch.compile(model)
    in_float32 = precision.dtype == torch.float32 and precision.device.type == "cpu"
    # A block that is run again in the backward pass would be without the faster products then.
    runs_again = config.train.gradient_checkpointing == "block"
    if not in_float32 or is_sharded or runs_again:
        return model
    return with_faster_products(model)


def choose_objective(config: ModelConfig, model: LanguageModel, **options: Any) -> Objective:
    """Next-token prediction, with the knobs of its section; with experts, also the load-balancing penalty."""
    objective: Objective = partial(next_token, **options)
    if not isinstance(config, DecoderConfig) or config.experts is None:
        return objective
    weight = config.experts.load_balance_weight
    return partial(with_load_balance, objective=objective, layers=model.sparse_layers(), weight=weight)


def build_optimizers(
    config: OptimizerConfig, model: nn.Module, precision: Precision, world: World = ALONE
) -> list[Optimizer]:
    """The optimizers: one, or two that divide the parameters between them."""
    options = config.model_dump(exclude={"type"})
    match config:
        case AdamWConfig():
            return optimizers.adamw(model, **options)
        case MuonConfig():
            dtype = torch.float32 if precision.dtype == torch.float32 else torch.bfloat16
            return optimizers.muon(model, **options, dtype=dtype, world=world)
        case SGDConfig():
            return optimizers.sgd(model, **options)
        case _:
            assert_never(config)


def build_schedule(config: ScheduleConfig, steps: int) -> Schedule:
    """The factor on the learning rate as a function of the step."""
    options = config.model_dump(exclude={"type"})
    match config:
        case ConstantConfig():
            return partial(schedules.constant, **options)
        case CosineConfig():
            return partial(schedules.cosine, steps=steps, **options)
        case WarmupStableDecayConfig():
            return partial(schedules.warmup_stable_decay, steps=steps, **options)
        case _:
            assert_never(config)


def step_before_decay(config: ScheduleConfig, steps: int) -> int | None:
    """The step from which a longer run could continue, if the learning rate falls only at the end."""
    if not isinstance(config, WarmupStableDecayConfig):
        return None
    return schedules.decay_begins(steps, config.decay_fraction) or None
