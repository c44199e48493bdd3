"""Does a model do as it is told? It answers held-out instructions, and the grammar judges.

Shapes: N answers, T positions, V vocabulary.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice, takewhile
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence

from pellucid.corpora.instructions import Instruction, InstructionsCorpus, Task, Verdict, is_held_out, judge
from pellucid.evaluation.estimate import NORMAL_95
from pellucid.generation.answers import write_answers
from pellucid.model.language_model import LanguageModel, eval_mode
from pellucid.runtime.precision import Precision
from pellucid.tokenizer import Tokenizer
from pellucid.tokenizer.chat import prompt_ids

ANSWERS_AT_ONCE = 100
ROWS_AT_ONCE = 16  # to compare two models: their logits are the largest tensors here
TOO_SHORT = "too short"  # of an answer that stops, or is cut off, before any fault


@dataclass(frozen=True)
class Answer:
    """An answer with its number of tokens and its verdict. kl: see `divergences`."""

    instruction: Instruction
    text: str
    n_tokens: int
    verdict: Verdict
    kl: float | None


@dataclass(frozen=True)
class Share:
    """k of n, as a proportion with an interval that holds the true one in 95 of 100 cases."""

    k: int
    n: int

    @property
    def value(self) -> float:
        return self.k / self.n

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's interval (1927): unlike k/n ± z √(…), it is right for k = n too, and for small n."""
        n, z = self.n, NORMAL_95
        center = (self.value + z**2 / (2 * n)) / (1 + z**2 / n)
        width = z / (1 + z**2 / n) * math.sqrt(self.value * (1 - self.value) / n + z**2 / (4 * n**2))
        return max(0.0, center - width), min(1.0, center + width)

    def to_json(self) -> dict[str, object]:
        return {"share": self.value, "interval": list(self.interval)}


@dataclass(frozen=True)
class AnswerTable:
    """How well held-out instructions are answered.

    whole, obeys: by the kind of instruction; the first is "all".   reward: mean of the verifier's, 0 to 1.
    distinct: share of texts that differ from all before.   kl: nats per answer from `reference`, None without one.
    first_faults: of the answers that are not whole, the skill that broke first, or TOO_SHORT.
    """

    whole: dict[str, Share]
    obeys: dict[str, Share]
    reward: float
    distinct: float
    tokens_per_answer: float
    first_faults: dict[str, int]
    kl: float | None = None
    reference: str | None = None

    def to_json(self) -> dict[str, object]:
        kinds = {
            name: {"answers": whole.n, "whole": whole.to_json(), "obeys": self.obeys[name].to_json()}
            for name, whole in self.whole.items()
        }
        figures = {name: getattr(self, name) for name in ("reward", "distinct", "tokens_per_answer", "first_faults")}
        return {"instructions": kinds, **figures, "kl_nats_per_answer": self.kl, "reference": self.reference}

    def table(self) -> str:
        """All figures for a person to read."""
        from pellucid.tables import table

        heading = "answers to held-out instructions", "number", "whole", "obey", "95 % of obey"
        rows = [
            (
                name,
                f"{whole.n:,}",
                f"{whole.value:.1%}",
                f"{obeys.value:.1%}",
                " to ".join(map("{:.1%}".format, obeys.interval)),
            )
            for (name, whole), obeys in zip(self.whole.items(), self.obeys.values(), strict=True)
        ]
        facts = {
            "reward": f"{self.reward:.3f}, the mean: half for a whole fable, half for one that obeys",
            "distinct": f"{self.distinct:.1%} of the answers; {self.tokens_per_answer:.0f} tokens each",
        }
        if self.first_faults:
            facts["first fault"] = ", ".join(f"{name} {number}" for name, number in self.first_faults.items())
        if self.kl is not None:
            facts["divergence"] = f"{self.kl:.2f} nats per answer from {self.reference}"
        return f"{table(heading, rows, {len(rows) - 1: 'bold'})}\n\n{table((), facts.items())}"


def judge_answers(
    model: LanguageModel,
    tokenizer: Tokenizer,
    corpus: InstructionsCorpus,
    precision: Precision,
    *,
    n: int,
    seed: int = 0,
    reference: LanguageModel | None = None,
) -> list[Answer]:
    """One answer to each of the first n held-out instructions, or to all if there are fewer, at temperature 1.

    The same seed draws the same. Raises ConfigError if the context has no room for an instruction and an answer.
    """
    asked = [instruction for instruction, _ in islice(corpus.examples("validation"), n)]
    answers: list[Answer] = []
    for first in range(0, len(asked), ANSWERS_AT_ONCE):
        some = asked[first : first + ANSWERS_AT_ONCE]
        prompts = [prompt_ids(tokenizer, [("user", instruction.text)]) for instruction in some]
        options: dict[str, Any] = {"max_new_tokens": model.context_length, "stop_ids": tokenizer.control_ids}
        with precision.for_decoding().autocast():
            written = write_answers(model, prompts, [(seed, first + i) for i in range(len(some))], **options)
        ids = [each.token_ids for each in written]
        kl = divergences(model, reference, prompts, ids, precision) if reference else [None] * len(some)
        for instruction, ids_of_one, kl_of_one in zip(some, ids, kl, strict=True):
            verdict = verdict_on(corpus, tokenizer, instruction.task, ids_of_one)
            answers.append(Answer(instruction, text_of(tokenizer, ids_of_one), len(ids_of_one), verdict, kl_of_one))
    return answers


def verdict_on(corpus: InstructionsCorpus, tokenizer: Tokenizer, task: Task, answer: Sequence[int]) -> Verdict:
    """The grammar's verdict on the text of an answer, which is whole only if the control token after it ends it.

    So one that was cut off is not whole, even if it was cut at the last character of a fable.
    """
    after = next((id_ for id_ in answer if id_ in tokenizer.control_ids), None)
    verdict = judge(corpus.fables, task, text_of(tokenizer, answer))
    return replace(verdict, whole=verdict.whole and after in tokenizer.stop_ids)


def text_of(tokenizer: Tokenizer, answer: Sequence[int]) -> str:
    """The text of an answer: all up to the first control token."""
    return tokenizer.decode(takewhile(lambda id_: id_ not in tokenizer.control_ids, answer))


@torch.inference_mode()
def divergences(
    model: LanguageModel,
    reference: LanguageModel,
    prompts: Sequence[Sequence[int]],
    answers: Sequence[Sequence[int]],
    precision: Precision,
) -> list[float]:
    """Σ over an answer's tokens of KL(model ‖ reference) for the next token, in nats, for each answer.

    Its mean over answers drawn from the model is KL(π ‖ π_ref) of whole answers, by the chain rule; of the two ways to
    estimate that, this one varies less than the mean of log π/π_ref.
    """
    kl_N: list[float] = []
    with eval_mode(model), eval_mode(reference):
        for first in range(0, len(answers), ROWS_AT_ONCE):
            rows = list(zip(prompts, answers, strict=True))[first : first + ROWS_AT_ONCE]
            ids = [torch.tensor([*prompt, *answer][:-1]) for prompt, answer in rows]
            is_before = [torch.arange(len(row)) >= len(prompt) - 1 for row, (prompt, _) in zip(ids, rows, strict=True)]
            tokens_NT = pad_sequence(ids, batch_first=True).to(precision.device)
            is_before_answer_NT = pad_sequence(is_before, batch_first=True)
            with precision.autocast():
                logits = model(tokens_NT), reference(tokens_NT)
            log_p_NTV, log_ref_NTV = (F.log_softmax(each.float(), dim=-1) for each in logits)
            kl_NT = (log_p_NTV.exp() * (log_p_NTV - log_ref_NTV)).sum(dim=-1).cpu()
            kl_N += (kl_NT * is_before_answer_NT).sum(dim=-1).tolist()
    return kl_N


def answer_table(answers: Sequence[Answer], reference: str | None = None) -> AnswerTable:
    """The figures of these answers. reference: what their `kl` is measured from."""
    kinds = {
        "all": answers,
        "an animal is asked for": [each for each in answers if each.instruction.task.form == "animal"],
        "a moral is asked for": [each for each in answers if each.instruction.task.form == "moral"],
        "both are asked for": [each for each in answers if each.instruction.task.form == "both"],
        "in wordings of training": [each for each in answers if each.instruction.is_seen_wording],
        "in wordings never seen": [each for each in answers if not each.instruction.is_seen_wording],
        "animal and moral never paired": [each for each in answers if is_held_out(each.instruction.task)],
    }
    kinds = {name: some for name, some in kinds.items() if some}
    broken = [each.verdict.broken_by or TOO_SHORT for each in answers if not each.verdict.whole]
    kl = [each.kl for each in answers if each.kl is not None]
    n = len(answers)
    return AnswerTable(
        whole={name: Share(sum(each.verdict.whole for each in some), len(some)) for name, some in kinds.items()},
        obeys={name: Share(sum(each.verdict.obeys for each in some), len(some)) for name, some in kinds.items()},
        reward=math.fsum(each.verdict.reward for each in answers) / n,
        distinct=len({each.text for each in answers}) / n,
        tokens_per_answer=sum(each.n_tokens for each in answers) / n,
        first_faults=dict(Counter(broken).most_common()),
        kl=math.fsum(kl) / n if kl else None,
        reference=reference if kl else None,
    )
