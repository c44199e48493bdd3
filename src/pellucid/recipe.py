"""The recipe of a run, from its config to everything that works in it: the one place where Pellucid is put together.

It reads from top to bottom as the data goes: corpus, tokenizer and rows; model; task; trainer; session. Each room makes
its part from its own section of the config, and gets what it needs of the others here, as arguments.
"""

from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from pellucid.config.data import CONVERSATIONS
from pellucid.config.load import run_config_to_yaml
from pellucid.config.post_training import DistillConfig, MaskedConfig, NextTokenConfig, SFTConfig
from pellucid.config.run import RunConfig
from pellucid.config.training import DrawingConfig
from pellucid.corpora.build import build_corpus
from pellucid.data.batches import Batches
from pellucid.data.prepared import PreparedData, prepared
from pellucid.evaluation.loss import Evaluation, evaluate_tokens
from pellucid.generation.sampling import Sampling
from pellucid.model.build import build_model
from pellucid.model.language_model import LanguageModel
from pellucid.objectives.next_token import choose_objective
from pellucid.objectives.task import Task
from pellucid.runtime.distributed import ALONE, World
from pellucid.runtime.precision import Precision, resolve_precision
from pellucid.trained import Base, give_tool
from pellucid.training.forward import forward_in_training, shards
from pellucid.training.optimizers import build_optimizers
from pellucid.training.progress import Origin, Saver
from pellucid.training.report import Report
from pellucid.training.samples import build_samples
from pellucid.training.schedules import build_schedule
from pellucid.training.session import Session
from pellucid.training.timetable import build_timetable
from pellucid.training.trackers import build_trackers
from pellucid.training.trainer import Trainer


def prepare_data(config: RunConfig, data_root: Path) -> PreparedData:
    """Corpus, tokenizer and tokens, under `data_root`: see `prepared`."""
    return prepared(config.corpus, config.tokenizer, data_root)


def build_batches(config: RunConfig, data: PreparedData) -> Batches:
    """The training rows of a run; all of one width for a compiled model, which each new width would recompile."""
    return Batches(
        data.train,
        config.model.context_length,
        config.train.batch_size,
        seed=config.seed,
        packing=config.data.packing,
        batches_per_update=config.train.gradient_accumulation_steps,
        full_width=config.train.compile,
    )


def build_first_model(config: RunConfig, data: PreparedData, base: Base | None = None) -> LanguageModel:
    """The model at step 0: with random weights from `config.seed`, with counts, or with the weights of the base."""
    torch.manual_seed(config.seed)
    model = build_model(config.model, data.tokenizer.vocab_size, learns_scores=config.learns_scores)
    if getattr(config.model, "counted", False) and config.start_from is None:
        from pellucid.data.pairs import count_pairs
        from pellucid.model.bigram import Bigram

        assert isinstance(model, Bigram)
        model.set_counts(torch.from_numpy(count_pairs(data.train, model.vocab_size)))
    if base is not None:
        base.load_into(model, config)
    if getattr(config.corpus, "thoughts", "none") == "tool":
        give_tool(model, config.corpus, data.tokenizer)
    return model


def evaluate(
    config: RunConfig,
    data: PreparedData,
    model: LanguageModel,
    precision: Precision,
    max_tokens: int | None = None,
    world: World = ALONE,
) -> Evaluation:
    """Scores the whole validation part, or about `max_tokens` of it; the ranks share the work and all get the result.

    Documents are scored from their own start where rows are packed so, and where a floor is known. Else it has a scale.
    """
    if config.objective.type == "masked":
        from pellucid.evaluation.masked import evaluate_masked

        return evaluate_masked(data, model, precision, config.corpus, max_tokens, world)
    evaluate_on = partial(
        evaluate_tokens,
        model,
        tokenizer=data.tokenizer,
        precision=precision,
        batch_size=config.train.batch_size,
        from_document_starts=data.truth is not None or config.data.packing == "documents",
        world=world,
    )
    evaluation = evaluate_on(data.validation, truth=data.truth, max_tokens=max_tokens)
    if max_tokens is None and data.scale is not None:
        seen = evaluate_on(data.train, truth=None, max_tokens=config.evaluation.max_tokens or 100_000)
        evaluation = replace(evaluation, scale=data.scale.beside(seen.compared))
    # What a model denies pairs that training never shows, other pairs may have: it says nothing of impossible texts.
    return replace(evaluation, impossible=None) if data.manifest.corpus["type"] == "sums" else evaluation


def build_task(
    config: RunConfig, data: PreparedData, model: LanguageModel, precision: Precision, world: World = ALONE
) -> Task:
    """The batches, the loss and the evaluation. Some losses compare the model with what it is now: the reference."""
    match config.objective:
        case NextTokenConfig() | SFTConfig() as objective:
            batches = build_batches(config, data)
            compiles = config.train.compile and not shards(config.train, world)  # then block by block
            return Task(
                lambda i, rows: batches.batch(i).part(rows),
                choose_objective(config.model, model, compiles, **objective.model_dump(exclude={"type"})),
                lambda model, max_tokens: evaluate(config, data, model, precision, max_tokens, world),
            )
        case MaskedConfig(share=share):
            from pellucid.objectives.masked import masked_task

            batches, loss = build_batches(config, data), choose_objective(config.model, model)
            return masked_task(batches, loss, share, data, lambda m, n: evaluate(config, data, m, precision, n, world))
        case DistillConfig() as objective:
            from pellucid.post_training.distillation import Distillation

            corpus, batches = build_corpus(config.corpus), build_batches(config, data)
            distillation = Distillation(objective, corpus, data, batches, model, precision)
            return distillation.task(lambda model, n: evaluate(config, data, model, precision, n, world))
        case _ as objective:
            from pellucid.post_training.build import PostTraining

            return PostTraining(
                model=model,
                data=data,
                precision=precision,
                world=world,
                seed=config.seed,
                batch_size=config.train.batch_size,
                batches_per_update=config.train.gradient_accumulation_steps,
            ).task(objective, build_corpus(config.corpus), config.answers_compared)


def build_trainer(
    config: RunConfig, data: PreparedData, world: World = ALONE, base: Base | None = None
) -> tuple[Trainer, Task]:
    """The trainer (model, optimizers, schedule) at step 0, and its task."""
    train, precision = config.train, resolve_precision(config.train.device, config.train.precision)
    model = build_first_model(config, data, base).to(precision.device)
    task = build_task(config, data, model, precision, world)
    end_of_text = None if config.data.documents_see_each_other else data.tokenizer.end_of_text
    forward, is_sharded = forward_in_training(model, train, precision, world, end_of_text)
    return Trainer(
        model,
        forward,
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
    ), task


def build_session(
    config: RunConfig, data: PreparedData, run_dir: Path, trainer: Trainer, task: Task, base_sha256: str | None = None
) -> Session:
    """The run as a whole, at step 0. base_sha256: of the weights of another run that it needs besides its own."""
    floor = data.validation_floor_nats_per_token if config.trains_as_it_validates else None
    timetable = build_timetable(config.train, config.schedule, config.evaluation, config.sample, config.checkpoint)
    origin = Origin(
        config_yaml=run_config_to_yaml(config),
        tokenizer_json=data.tokenizer.to_json(),
        data_fingerprint=data.fingerprint,
        base_sha256=base_sha256,
        reward_sha256=task.reward_sha256,
    )
    trackers = build_trackers(config.trackers, run_dir, config.name, origin.config_yaml, trainer.world)
    return Session(
        trainer=trainer,
        timetable=timetable,
        saver=Saver(trainer, task, run_dir, origin, config.checkpoint.keep_last, timetable.before_decay),
        report=Report(run_dir, config.name, task.figure, floor, trackers, is_shown=trainer.world.is_first),
        validate=partial(task.evaluate, trainer.model, config.evaluation.max_tokens or 10**18),  # all, without a scale
        write_samples=build_samples(
            task,
            build_corpus(config.corpus) if config.corpus.type in CONVERSATIONS and not task.write_samples else None,
            data.tokenizer,
            trainer,
            config.sample.prompt,
            config.sample.n_samples,
            sampling=Sampling(**config.sample.model_dump(include=set(DrawingConfig.model_fields))),
            max_new_tokens=config.sample.max_new_tokens,
            seed=config.seed,
        ),
    )
