"""Rollouts: the model answers prompts, the answers are rewarded, and it learns from them for an update or a few.

    instruction ─► prompt ─► G answers ─► judged ─► rewards ─► advantages ─► updates
                                  └─► log-probabilities, of the model and of the reference

What is asked and how the answers are drawn is a function of the seed and the step, and the answers in use are saved
with a checkpoint: a run that is resumed is the same run.

Shapes: P prompts, G answers to each, N = P G answers, T positions.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from pellucid import failpoints
from pellucid.adapters.lora import merged
from pellucid.data.batches import IGNORE_INDEX
from pellucid.errors import CheckpointError
from pellucid.generation.answers import write_answers
from pellucid.model.language_model import LanguageModel, eval_mode
from pellucid.objectives.objective import Forward, Loss, Objective
from pellucid.objectives.policy import RolloutBatch, k3, log_probabilities
from pellucid.post_training.asking import Asking
from pellucid.post_training.credit import Credit, Parts
from pellucid.post_training.rewards import Judged, Reward, rows_of
from pellucid.runtime.distributed import World
from pellucid.runtime.precision import Precision
from pellucid.tokenizer import Tokenizer

TRAINING, VALIDATION = 0, 1  # part of the seed of an answer
ANSWERS_AT_ONCE = 128  # are written while validating
ROWS_AT_ONCE = 16  # are read by the reference: its logits are the largest tensors here


class JudgedBatch(NamedTuple):
    """Answers to learn from, and the figures by which each was judged, which are reported: (P, G) each."""

    answers: RolloutBatch
    figures: dict[str, Tensor]

    @property
    def n_losses(self) -> int:
        return self.answers.n_losses

    @property
    def n_tokens(self) -> int:
        return self.answers.n_tokens

    def part(self, rows: slice) -> JudgedBatch:
        return JudgedBatch(self.answers.part(rows), {name: tensor[rows] for name, tensor in self.figures.items()})

    def to(self, device: torch.device) -> JudgedBatch:
        return JudgedBatch(self.answers.to(device), {name: tensor.to(device) for name, tensor in self.figures.items()})


def reporting_verdicts(objective: Objective) -> Objective:
    """Adds the figures of the verdicts to those of an objective, such as how many answers are right."""

    def with_verdicts(forward: Forward, batch: JudgedBatch) -> Loss:
        loss = objective(forward, batch.answers)
        sums = {name: tensor_PG.sum() for name, tensor_PG in batch.figures.items()}
        return replace(loss, figures={**loss.figures, **sums})

    return with_verdicts


@dataclass(frozen=True)
class RewardEvaluation:
    """How good the answers to what is held out are, as means over answers: one to each, always the same draws.

    figures: by which they were judged, and the same in words.   kl: divergence from the reference, in nats per answer.
    kind: of what was asked.   beta: the price of a nat.
    """

    reward: float
    figures: dict[str, float]
    words: str
    kl: float
    answer_tokens: float
    n_answers: int
    kind: str
    beta: float

    @property
    def loss(self) -> float:
        """-(reward - β KL): RLHF makes the bracket large (equation P8)."""
        return self.beta * self.kl - self.reward

    def to_row(self) -> dict[str, object]:
        figures = {"reward": self.reward, **self.figures, "kl": self.kl, "answer_tokens": self.answer_tokens}
        return {"val_loss": self.loss, **{f"val_{name}": value for name, value in figures.items()}}

    def to_json(self) -> dict[str, object]:
        """All figures, as `pellucid evaluate --json` prints them."""
        return {**asdict(self), "loss": self.loss}

    def table(self) -> str:
        """All figures for a person to read, one per line."""
        from pellucid.tables import table

        facts = {
            "reward": f"{self.reward:.3f} on average, of {self.n_answers:,} answers to held-out {self.kind}",
            "answers": self.words,
            "KL": f"{self.kl:.2f} nats an answer from the model it started from",
            "length": f"{self.answer_tokens:.0f} tokens an answer",
            "loss": f"{self.loss:.3f}: -(reward - {self.beta:g} KL)",
        }
        return table((), facts.items())

    def brief(self) -> str:
        """Reward, verdicts and divergence, in a line."""
        return f"reward {self.reward:.3f}, {self.words}, {self.kl:.2f} nats from the reference"

    def __str__(self) -> str:
        return f"{self.brief()}; {self.n_answers:,} held-out {self.kind}"


@dataclass(frozen=True)
class Written:
    """Answers, one to each prompt: tokens of prompts and answers, ln p of those drawn, verdicts, rewards.

    is_own: which tokens of the answers are the policy's, and not those of a tool, which are not learned. settled: the
    places in the row of inputs after which each part of the reward was certain.
    """

    prompts: list[list[int]]
    answers: list[list[int]]
    is_own: list[Sequence[bool]]
    log_probabilities: list[Tensor]
    judged: list[Judged]
    rewards_N: Tensor  # noqa: N815
    settled_N2: Tensor  # noqa: N815


@dataclass(kw_only=True)
class Rollouts:
    """The answers that a policy learns from: `batch(i, rows)` gives answers to these prompts of micro-batch i.

    The model writes them when they are first asked for, and they are kept for `updates_per_rollout` updates. What is
    asked, and how the answers are drawn, is a function of the seed and the number of the prompt.
    """

    model: LanguageModel
    reference: LanguageModel
    asking: Asking
    tokenizer: Tokenizer
    reward: Reward
    credit: Credit
    precision: Precision
    world: World
    seed: int
    batch_size: int
    batches_per_update: int
    updates_per_rollout: int
    group_size: int
    max_new_tokens: int
    temperature: float
    beta: float

    def __post_init__(self) -> None:
        self._n_prompts = self.batch_size * self.batches_per_update  # of an update
        self._next_step = 0
        self._rollout = -1  # the number of the one that is in use
        self._parts: dict[range, JudgedBatch] = {}  # of it, by the prompts
        self._restored: JudgedBatch | None = None  # all of it, from a checkpoint

    def batch(self, micro_batch: int, rows: slice) -> JudgedBatch:
        """These prompts with all of their answers."""
        step, place = divmod(micro_batch, self.batches_per_update)
        rollout = step // self.updates_per_rollout
        if rollout != self._rollout:
            self._rollout, self._parts, self._restored = rollout, {}, None
        self._next_step = step + 1
        prompts = range(place * self.batch_size, (place + 1) * self.batch_size)[rows]
        if prompts not in self._parts:
            self._parts[prompts] = self._restored_part(prompts) or self._write_part(prompts)
        return self._parts[prompts]

    def evaluate(self, model: LanguageModel, max_tokens: int | None) -> RewardEvaluation:
        """Judges answers to what is held out, or only to as many as `max_tokens` has room for.

        The ranks share the work.
        """
        n_held_out = len(self.asking.held_out)
        n = n_held_out if max_tokens is None else max_tokens // self.max_new_tokens
        numbers = range(min(n_held_out, max(1, n)))[self.world.rank :: self.world.size]
        sums = np.zeros(5)
        for first in range(0, len(numbers), ANSWERS_AT_ONCE):
            written = self._answer_held_out(model, numbers[first : first + ANSWERS_AT_ONCE])
            inputs_NT, targets_NT, old_NT = as_rows(written)
            kl_NT = k3(old_NT, self._reference_log_p(inputs_NT, targets_NT))
            judged = np.sum([each.figures for each in written.judged], axis=0)
            n_tokens = sum(map(sum, written.is_own))
            sums += [float(written.rewards_N.sum()), *judged, float(kl_NT.sum()), n_tokens]
        *sums_of_all, n_answers = self.world.totals([*sums, len(numbers)])
        reward, *means, kl, answer_tokens = (total / n_answers for total in sums_of_all)
        figures = dict(zip(self.asking.names, means, strict=True))
        words = self.asking.words.format(**figures)
        return RewardEvaluation(reward, figures, words, kl, answer_tokens, int(n_answers), self.asking.kind, self.beta)

    def samples(self, model: LanguageModel, n: int) -> list[str]:
        """The first that was held out, the answers, and how good they are."""
        asked = self.asking.held_out[:n]
        written = self._answer_held_out(model, range(len(asked)))
        answers = [self.tokenizer.decode(ids) for ids in written.answers]
        return [self.asking.in_words(*each) for each in zip(asked, answers, written.judged, strict=True)]

    def state(self) -> dict[str, Tensor]:
        """The answers of all ranks from which the next update learns too; nothing if it begins with new ones.

        All ranks must ask.
        """
        if self._next_step % self.updates_per_rollout == 0:
            return {}
        tensors = self._of_all_ranks() if self._restored is None else as_tensors(self._restored)
        return {"next_step": torch.tensor(self._next_step), **tensors}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Takes back what `state` gave. CheckpointError if that was of other rollouts."""
        if not tensors:
            return
        shape = (self._n_prompts, self.group_size)
        names = {*RolloutBatch._fields, *(f"{name}_PG" for name in self.asking.names)}
        if tensors.keys() != {"next_step", *names} or any(tensors[name].shape[:2] != shape for name in names):
            what = f"they are not {shape[1]} to each of {shape[0]} prompts"
            raise CheckpointError("the checkpoint's answers", what, "use the config that the run was trained with")
        answers = RolloutBatch(*(tensors[name] for name in RolloutBatch._fields))
        self._restored = JudgedBatch(answers, {name: tensors[f"{name}_PG"] for name in self.asking.names})
        self._next_step = int(tensors["next_step"])
        self._rollout, self._parts = self._next_step // self.updates_per_rollout, {}

    def _write_part(self, prompts: range) -> JudgedBatch:
        """The policy as it is now answers these prompts of the update."""
        failpoints.reached("rollout")
        numbers = [self._rollout * self._n_prompts + prompt for prompt in prompts for _ in range(self.group_size)]
        asked = [self.asking.ask(random.Random(f"prompt {number} of {self.seed}")) for number in numbers]
        seeds = [(self.seed, TRAINING, number, i % self.group_size) for i, number in enumerate(numbers)]
        written = self._write(self.model, asked, seeds)
        inputs_NT, targets_NT, old_NT = as_rows(written)
        reference_NT = self._reference_log_p(inputs_NT, targets_NT)

        def by_prompt(tensor_NX: Tensor) -> Tensor:
            return tensor_NX.view(-1, self.group_size, *tensor_NX.shape[1:])

        unknown_PGT = by_prompt(torch.zeros_like(old_NT))
        answers = RolloutBatch(
            inputs_PGT=by_prompt(inputs_NT),
            targets_PGT=by_prompt(targets_NT),
            old_PGT=by_prompt(old_NT),
            reference_PGT=by_prompt(reference_NT),
            advantages_PGT=unknown_PGT,
            rewards_PG=by_prompt(written.rewards_N),
            returns_PGT=unknown_PGT,
        )
        parts_N2, figures_N2 = (
            torch.tensor([getattr(each, name) for each in written.judged], dtype=torch.float32)
            for name in ("parts", "figures")
        )
        parts = Parts(by_prompt(parts_N2), by_prompt(written.settled_N2))
        figures = dict(zip(self.asking.names, map(by_prompt, figures_N2.unbind(dim=1)), strict=True))
        with eval_mode(self.model):
            return JudgedBatch(self.credit(answers, parts), figures)

    def _answer_held_out(self, model: LanguageModel, numbers: Sequence[int]) -> Written:
        seeds = [(self.seed, VALIDATION, number, 0) for number in numbers]
        return self._write(model, [self.asking.held_out[number] for number in numbers], seeds)

    def _write(self, model: LanguageModel, asked: Sequence[Any], seeds: Sequence[Sequence[int]]) -> Written:
        """An answer to each prompt. Any control token ends it: the model shall learn when to end."""
        prompts = [self.asking.prompt(each) for each in asked]
        with merged(model), self.precision.for_decoding().autocast():
            written = write_answers(
                model,
                prompts,
                seeds,
                max_new_tokens=self.max_new_tokens,
                stop_ids=self.tokenizer.control_ids,
                temperature=self.temperature,
                keeps_log_p=True,
            )
        judged = [self.asking.judge(*each) for each in zip(asked, (each.token_ids for each in written), strict=True)]
        # What a tool writes at the end of an answer is read by nobody.
        last = [max(np.flatnonzero(each.is_own[: of.n_tokens])) for each, of in zip(written, judged, strict=True)]
        kept = [(each, slice(place + 1)) for each, place in zip(written, last, strict=True)]
        answers, is_own = [each.token_ids[own] for each, own in kept], [each.is_own[own] for each, own in kept]
        log_p = [torch.tensor(each.log_p[own]) for each, own in kept]
        settled_N2 = torch.tensor([each.settled for each in judged])
        settled_N2 += torch.tensor([len(prompt) - 1 for prompt in prompts])[:, None]
        return Written(prompts, answers, is_own, log_p, judged, self.reward(prompts, answers, judged), settled_N2)

    @torch.no_grad()
    def _reference_log_p(self, inputs_NT: Tensor, targets_NT: Tensor) -> Tensor:
        """ln p of each target under the model that training started from, at the temperature of the answers."""
        log_p = []
        parts = (torch.split(tensor_NT, ROWS_AT_ONCE) for tensor_NT in (inputs_NT, targets_NT))
        for inputs_CT, targets_CT in zip(*parts, strict=True):
            with self.precision.autocast():
                logits_CTV = self.reference(inputs_CT.to(self.precision.device))
            targets_CT = targets_CT.to(self.precision.device)
            log_p.append(log_probabilities(logits_CTV, targets_CT, self.temperature).cpu())
        return torch.cat(log_p)

    def _restored_part(self, prompts: range) -> JudgedBatch | None:
        if self._restored is None:
            return None
        part = self._restored.part(slice(prompts.start, prompts.stop))
        is_target_PGT = part.answers.targets_PGT != IGNORE_INDEX
        length = int(is_target_PGT.any(dim=1).any(dim=0).nonzero().max()) + 1
        answers = RolloutBatch(*(tensor[..., :length] if tensor.ndim == 3 else tensor for tensor in part.answers))
        return part._replace(answers=answers)

    def _of_all_ranks(self) -> dict[str, Tensor]:
        """Each rank fills in its rows and leaves zeros elsewhere; the sum has all rows."""
        length = self.world.largest(max(part.answers.inputs_PGT.size(2) for part in self._parts.values()))
        whole: dict[str, Tensor] = {}
        for prompts, part in self._parts.items():
            for name, tensor in as_tensors(part).items():
                if tensor.ndim == 3:
                    padding = IGNORE_INDEX if name == "targets_PGT" else 0
                    tensor = F.pad(tensor, (0, length - tensor.size(2)), value=padding)
                whole.setdefault(name, tensor.new_zeros(self._n_prompts, *tensor.shape[1:]))
                whole[name][prompts.start : prompts.stop] = tensor
        self.world.sum_together(list(whole.values()))
        return whole


def as_rows(written: Written) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs, targets, and ln p of the targets where they are an answer's: (N, T) each. A tool's are no targets."""
    inputs_NT, targets_NT = (tensor[:, :-1] for tensor in rows_of(written.prompts, written.answers))
    is_own_NT = rows_of(written.prompts, written.is_own)[1][:, :-1]
    old_NT = torch.zeros(targets_NT.shape)
    old_NT[targets_NT != IGNORE_INDEX] = torch.cat(written.log_probabilities)  # 0 of a tool's: nothing else could come
    return inputs_NT, targets_NT.masked_fill(is_own_NT == 0, IGNORE_INDEX), old_NT


def as_tensors(batch: JudgedBatch) -> dict[str, Tensor]:
    return {**batch.answers._asdict(), **{f"{name}_PG": tensor for name, tensor in batch.figures.items()}}
