"""The tasks of post-training: learning from pairs of answers, or from answers of one's own."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

import torch
from torch import Tensor
from typing_extensions import assert_never

from pellucid.adapters.lora import frozen_copy
from pellucid.checkpoint.run_directory import find_step_directory
from pellucid.checkpoint.step_directory import MODEL_FILE
from pellucid.config.post_training import (
    DPOConfig,
    GRPOConfig,
    LearnedRewardConfig,
    PPOConfig,
    RewardConfig,
    RewardModelConfig,
    VerifierConfig,
)
from pellucid.config.run import run_and_checkpoint
from pellucid.corpora.corpus import Corpus
from pellucid.corpora.drawn import Drawn
from pellucid.corpora.instructions import InstructionsCorpus
from pellucid.data.prepared import PreparedData
from pellucid.errors import ConfigError, DataError
from pellucid.files import sha256
from pellucid.languages.symbols import SymbolLanguage
from pellucid.model.language_model import LanguageModel
from pellucid.model.scoring_decoder import ScoringDecoder
from pellucid.objectives.objective import Forward, Loss, Objective
from pellucid.objectives.policy import RolloutBatch, grpo, log_probabilities, ppo
from pellucid.objectives.preference import PairBatch, dpo, reward_model
from pellucid.objectives.task import Task
from pellucid.post_training.asking import Asking, Instructions
from pellucid.post_training.credit import (
    Credit,
    credit_by_group,
    credit_by_settling,
    credit_by_values,
    explained_variance,
)
from pellucid.post_training.pair_evaluation import evaluate_pairs
from pellucid.post_training.pairs import (
    PAIRS_AT_ONCE,
    TRAIN,
    VALIDATION,
    VALIDATION_PAIRS,
    Pair,
    PairWriter,
    Ranking,
    in_new_order,
    pair_batch,
    pairs_of_update,
    pairs_that_fit,
    prompt_of,
    ranking_of,
)
from pellucid.post_training.rewards import GrammarJudge, LearnedReward, Reward, by_verifier
from pellucid.post_training.rollouts import Rollouts, reporting_verdicts
from pellucid.runtime.distributed import World
from pellucid.runtime.precision import Precision
from pellucid.tokenizer import Tokenizer
from pellucid.trained import load_trained_model

GetPairs = Callable[[int, slice], Sequence[Pair | Ranking]]


@dataclass(frozen=True, kw_only=True)
class PostTraining:
    """The tasks that begin with a trained model, `task` for each objective."""

    model: LanguageModel
    data: PreparedData
    precision: Precision
    world: World
    seed: int
    batch_size: int
    batches_per_update: int

    @cached_property
    def reference(self) -> LanguageModel:
        """A frozen copy of the model before training; it also answers the instructions of which pairs are made."""
        return frozen_copy(self.model)

    def task(
        self,
        objective: RewardModelConfig | DPOConfig | GRPOConfig | PPOConfig,
        corpus: Corpus,
        n_answers: int,
    ) -> Task:
        """corpus: of instructions, or else of pairs from files, or of rankings of `n_answers`."""
        match objective:
            case RewardModelConfig() | DPOConfig():
                if isinstance(corpus, InstructionsCorpus):
                    return self._learning_from_pairs(objective, *self._written_pairs(objective, corpus))
                return self._learning_from_pairs(objective, *self._pairs_of_files(n_answers))
            case GRPOConfig() | PPOConfig():
                return self._learning_from_answers(objective, build_asking(objective, corpus, self.data))
            case _:
                assert_never(objective)

    def _learning_from_pairs(
        self, objective: RewardModelConfig | DPOConfig, get_pairs: GetPairs, held_out: Sequence[Pair | Ranking]
    ) -> Task:
        """Learning which of two answers is better. get_pairs(i, rows): of micro-batch i; held_out: this rank's."""
        precision, world, is_dpo = self.precision, self.world, isinstance(objective, DPOConfig)
        log_p = partial(answer_log_probabilities, self.reference, precision) if is_dpo else None

        def batches(max_tokens: int | None) -> Iterator[PairBatch]:
            n_tokens = 0
            for first in range(0, len(held_out), self.batch_size):
                batch = pair_batch(held_out[first : first + self.batch_size], log_p)
                yield batch
                n_tokens += batch.n_tokens * world.size
                if max_tokens is not None and n_tokens >= max_tokens:
                    break

        return Task(
            lambda micro_batch, rows: pair_batch(get_pairs(micro_batch, rows), log_p),
            objective_of(objective, self.model, precision),
            lambda model, max_tokens: evaluate_pairs(
                model, objective_of(objective, model, precision), batches(max_tokens), precision, world
            ),
            # A reward model gives numbers: what it would write is no longer of interest.
            write_samples=None if is_dpo else lambda *_: [],
        )

    def _pairs_of_files(self, n_answers: int) -> tuple[GetPairs, Sequence[Pair | Ranking]]:
        """The pairs of a preferences corpus: in a new order each epoch; for validation in the files' order."""
        train, validation, length = self.data.train, self.data.validation, self.model.context_length
        fitting, held_out = (pairs_that_fit(tokens, length, n_answers) for tokens in (train, validation))
        nth = in_new_order(fitting, self.seed)

        def get_pairs(micro_batch: int, rows: slice) -> list[Ranking]:
            first = micro_batch * self.batch_size
            return [ranking_of(train, nth(n), n_answers) for n in range(first, first + self.batch_size)[rows]]

        mine = held_out[self.world.rank :: self.world.size]
        return get_pairs, [ranking_of(validation, i, n_answers) for i in mine]

    def _written_pairs(
        self, objective: RewardModelConfig | DPOConfig, corpus: InstructionsCorpus
    ) -> tuple[GetPairs, Sequence[Pair | Ranking]]:
        """Answers of the reference to the corpus's instructions, judged by the grammar.

        Of validation pairs the better is chosen, and ties are left out.
        """
        data, world = self.data, self.world
        n_train, n_validation = (len(tokens.boundaries) - 1 for tokens in (data.train, data.validation))
        nth = in_new_order(range(n_train), self.seed)
        in_training = PairWriter(
            model=self.reference,
            prompt=lambda n: prompt_of(data.train, nth(n)),
            judge=GrammarJudge(corpus, data.tokenizer),
            precision=self.precision,
            stop_ids=data.tokenizer.control_ids,  # any control token ends an answer, as in rollouts
            max_new_tokens=objective.max_new_tokens,
            noise=objective.judge_noise,
            seeds=(self.seed, TRAIN),
            fork=objective.fork,
            cut=objective.cut if isinstance(objective, DPOConfig) else "none",
        )
        in_validation = replace(
            in_training,
            prompt=partial(prompt_of, data.validation),
            noise=0.0,
            seeds=(self.seed, VALIDATION),
            fork=False,
            cut="none",
        )
        # Now, so that a run without a preference ends before it has begun.
        mine = range(min(n_validation, VALIDATION_PAIRS))[world.rank :: world.size]
        written = [in_validation(mine[i : i + PAIRS_AT_ONCE]) for i in range(0, len(mine), PAIRS_AT_ONCE)]
        held_out = [pair for pairs in written for pair in pairs if pair is not None]
        if world.totals([len(held_out)]) == [0]:
            what = "the model of start_from answers all held-out instructions equally well: nothing can be preferred"
            raise DataError("objective", what, "fine-tune it first: `pellucid train instructions_sft`")
        pairs = pairs_of_update(in_training, batch_size=self.batch_size, batches_per_update=self.batches_per_update)
        return pairs, held_out

    def _learning_from_answers(self, objective: GRPOConfig | PPOConfig, asking: Asking) -> Task:
        """Learning from the model's own answers."""
        credit, learn = build_credit(objective, self.model, self.precision)
        rollouts = Rollouts(
            model=self.model,
            reference=self.reference,
            asking=asking,
            tokenizer=self.data.tokenizer,
            reward=build_reward(objective.reward, self.data.tokenizer, self.precision),
            credit=credit,
            precision=self.precision,
            world=self.world,
            seed=self.seed,
            batch_size=self.batch_size,
            batches_per_update=self.batches_per_update,
            updates_per_rollout=objective.updates_per_rollout,
            group_size=objective.group_size if isinstance(objective, GRPOConfig) else 1,
            max_new_tokens=objective.max_new_tokens,
            temperature=objective.temperature,
            beta=objective.beta,
        )
        return Task(
            rollouts.batch,
            reporting_verdicts(learn),
            rollouts.evaluate,
            write_samples=rollouts.samples,
            figure="rewards.png",
            reward_sha256=reward_sha256(objective.reward),
            state=rollouts.state,
            restore=rollouts.restore,
        )


def build_asking(objective: GRPOConfig | PPOConfig, corpus: Corpus, data: PreparedData) -> Asking:
    """Instructions to a policy, or the questions of hops and sums."""
    if isinstance(corpus, InstructionsCorpus):
        return Instructions(corpus, data.tokenizer)
    from pellucid.post_training.questions import Questions

    assert isinstance(corpus, Drawn)
    assert isinstance(corpus.language, SymbolLanguage)
    assert isinstance(objective, GRPOConfig), "the config has checked it"
    return Questions(corpus.language, data, objective.price)


def objective_of(objective: RewardModelConfig | DPOConfig, model: LanguageModel, precision: Precision) -> Objective:
    """A reward model has no use for logits: its objective runs the scalar head instead of what it is given."""
    match objective:
        case DPOConfig(beta=beta):
            return partial(dpo, beta=beta)
        case RewardModelConfig():
            assert isinstance(model, ScoringDecoder)
            scores = precision.computing(model.scores)
            return lambda _, batch: reward_model(scores, batch)
        case _:
            assert_never(objective)


@torch.no_grad()
def answer_log_probabilities(
    model: LanguageModel, precision: Precision, inputs_NT: Tensor, targets_NT: Tensor
) -> Tensor:
    """log p of each answer, summed over its tokens: (N,), on the CPU."""
    logits_NTV = precision.computing(model)(inputs_NT)
    return log_probabilities(logits_NTV, targets_NT.to(precision.device)).sum(dim=1).cpu()


def build_credit(
    objective: GRPOConfig | PPOConfig, model: LanguageModel, precision: Precision
) -> tuple[Credit, Objective]:
    """How rewards are credited to tokens, and the loss of answers that are credited so."""
    clip, temperature = objective.clip, objective.temperature
    match objective:
        case GRPOConfig(kl=kl, beta=beta, credit_decay=decay, by_spread=by_spread):
            in_loss, in_reward = (beta, 0.0) if kl == "loss" else (0.0, beta)
            of_group = partial(credit_by_group, beta=in_reward)
            credit = of_group if decay is None else partial(credit_by_settling, decay=decay)
            return partial(credit, by_spread=by_spread), partial(grpo, beta=in_loss, clip=clip, temperature=temperature)
        case PPOConfig(beta=beta, value_weight=value_weight):
            assert isinstance(model, ScoringDecoder)
            forward = precision.computing(model.logits_and_scores)

            def learn(_: Forward, batch: RolloutBatch) -> Loss:
                loss = ppo(forward, batch, clip=clip, value_weight=value_weight, temperature=temperature)
                foreseen = explained_variance(batch) * batch.n_losses
                return replace(loss, figures={**loss.figures, "explained_variance": foreseen})

            credit = partial(
                credit_by_values,
                logits_and_values=forward,
                beta=beta,
                discount=objective.discount,
                gae_lambda=objective.gae_lambda,
                reward_at=objective.reward_at,
            )
            return credit, learn
        case _:
            assert_never(objective)


def reward_sha256(reward: RewardConfig) -> str | None:
    """The hash of the reward model's weights, if there is one: other weights would give other rewards."""
    return sha256(reward_directory(reward) / MODEL_FILE) if isinstance(reward, LearnedRewardConfig) else None


def reward_directory(config: LearnedRewardConfig) -> Path:
    """The checkpoint that gives the rewards."""
    return find_step_directory(*run_and_checkpoint(config.run))


def build_reward(config: RewardConfig, tokenizer: Tokenizer, precision: Precision) -> Reward:
    """The reward that answers get. ConfigError for a run that is not a reward model, or has another tokenizer."""
    match config:
        case VerifierConfig():
            return by_verifier
        case LearnedRewardConfig(run=run):
            trained = load_trained_model(reward_directory(config))
            if trained.config.objective.type != "reward_model":
                fix = "name a run of objective.type reward_model"
                raise ConfigError("objective.reward.run", f"{run} was trained as {trained.config.objective.type}", fix)
            if trained.tokenizer.to_json() != tokenizer.to_json():
                fix = "train the reward model from the same run as this one"
                raise ConfigError("objective.reward.run", f"{run} has another vocabulary", fix)
            assert isinstance(trained.model, ScoringDecoder)
            return LearnedReward(precision.computing(trained.model.to(precision.device).scores))
        case _:
            assert_never(config)
