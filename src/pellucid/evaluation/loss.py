"""How good is the model? Its loss on text it has not seen, and the best possible loss if that is known.

Shapes: B rows, T positions, N scored tokens, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pellucid.data.batches import IGNORE_INDEX, Batch, evaluation_batches
from pellucid.data.token_file import TokenFile
from pellucid.data.token_truth import TokenTruth
from pellucid.evaluation.estimate import Estimate
from pellucid.evaluation.proof import IMPOSSIBLE, by_document, chance_of, impossible_mass
from pellucid.evaluation.skills import SkillTable, skill_table
from pellucid.model.language_model import LanguageModel, eval_mode
from pellucid.objectives.next_token import cross_entropy
from pellucid.runtime.distributed import ALONE, World
from pellucid.runtime.precision import Precision
from pellucid.tokenizer import Tokenizer

if TYPE_CHECKING:
    from pellucid.data.scale import Scale
    from pellucid.evaluation.answers import AnswerTable  # which loads the language of instructions
    from pellucid.evaluation.choosing import Choices

NOT_MINE = torch.zeros(2, 1, dtype=torch.float64)  # in the place of a token that another rank scores


@dataclass(frozen=True)
class Evaluation:
    """Nats spent on a text, in the units that people compare.

    nats: −Σ log p(token), end-of-text tokens included.   n_tokens: how many were predicted.
    n_bytes: UTF-8 bytes; of ids, which are no text, 0.    floor_nats: the text's own −log p under the truth, if known.
    frequency_nats: what a reader spends who knows how often each token occurs in the text, and no context.
    impossible: the share of the model's probability on impossible texts, if known (`proof.impossible_mass`).
    skills: the same by skill, if known.                   answers: to instructions or questions, if that was asked.
    reasons: what was found wrong with a score that is impossible.   scale: what others reach, if no floor is known.
    """

    nats: float
    n_tokens: int
    n_bytes: int
    floor_nats: float | None
    frequency_nats: float = math.nan
    impossible: Estimate | None = None
    skills: SkillTable | None = None
    answers: AnswerTable | Choices | None = None
    reasons: tuple[str, ...] = ()
    scale: Scale | None = None

    def _repr_html_(self) -> str:
        """In a notebook: the table that `pellucid evaluate` prints."""
        return f"<pre>{escape(self.table())}</pre>"

    @property
    def loss_nats_per_token(self) -> float:
        return self.nats / self.n_tokens

    @property
    def loss(self) -> float:
        """The quantity that training minimises, in nats per token."""
        return self.loss_nats_per_token

    @property
    def perplexity(self) -> float:
        """exp(loss): as hard as guessing among this many equally likely tokens."""
        return math.exp(min(700.0, self.loss_nats_per_token))

    @property
    def bits_per_byte(self) -> float | None:
        """Comparable between tokenizers, unlike loss per token. None of what is no text."""
        return self.nats / math.log(2) / self.n_bytes if self.n_bytes else None

    @property
    def compared(self) -> float:
        """The figure that stands beside those of a scale: bits per byte, or nats per token of what is no text."""
        return self.loss_nats_per_token if self.bits_per_byte is None else self.bits_per_byte

    @property
    def floor_nats_per_token(self) -> float | None:
        """The lowest loss that any model can reach on this text: the irreducible loss (equation 18)."""
        return None if self.floor_nats is None else self.floor_nats / self.n_tokens

    @property
    def excess_nats_per_token(self) -> float | None:
        """The reducible loss: what is left to learn (equation 18)."""
        return None if self.floor_nats is None else self.loss_nats_per_token - self.floor_nats / self.n_tokens

    @property
    def excess_fraction(self) -> float | None:
        """The excess as a share of the floor."""
        return None if self.floor_nats is None else self.nats / self.floor_nats - 1

    @property
    def left_to_learn(self) -> float | None:
        """The excess as a share of what context tells: of the excess of a reader who knows none."""
        if self.floor_nats is None or not self.frequency_nats > self.floor_nats:
            return None
        return (self.nats - self.floor_nats) / (self.frequency_nats - self.floor_nats)

    @property
    def chance(self) -> float | None:
        """At most how often a model that has not seen the text scores so low (`proof.chance_of`)."""
        return None if self.floor_nats is None else chance_of(self.nats - self.floor_nats)

    def to_json(self) -> dict[str, object]:
        """All figures, as `pellucid evaluate --json` prints them."""
        names = ["loss_nats_per_token", "perplexity", "bits_per_byte"]
        names += ["floor_nats_per_token", "excess_nats_per_token", "excess_fraction", "left_to_learn", "chance"]
        figures = {name: getattr(self, name) for name in names}
        figures |= {"tokens": self.n_tokens, "bytes": self.n_bytes, "scale": self.scale and self.scale.model_dump()}
        parts = {"impossible_share": self.impossible, "skills": self.skills, "answers": self.answers}
        return {**figures, **{name: part and part.to_json() for name, part in parts.items()}}

    def to_row(self) -> dict[str, object]:
        """The figures for metrics.jsonl: an evaluation during training, perhaps of only a part of the text."""
        row: dict[str, object] = {"val_loss": self.loss_nats_per_token}
        if self.skills is not None:
            row |= {"val_floor": self.floor_nats_per_token, "skills": self.skills.to_json()}
        return row

    def brief(self) -> str:
        """The loss and, if known, how far it is above the floor."""
        excess = self.excess_nats_per_token
        beside_floor = "" if excess is None else f", {excess:.4f} above the floor"
        return f"validation loss {self.loss_nats_per_token:.4f} nats/token{beside_floor}"

    def table(self) -> str:
        """All figures for a person to read, one per line."""
        from pellucid.tables import table

        facts = {
            "loss": f"{self.loss_nats_per_token:.4f} nats/token over {self.n_tokens:,} tokens",
            "perplexity": f"{self.perplexity:.3f}",
            "bits/byte": self.bits_per_byte is not None and f"{self.bits_per_byte:.4f}",
            **(self.scale.rows(self.compared) if self.scale else {}),
            "floor": self.floor_nats is not None
            and f"{self.floor_nats_per_token:.4f} nats/token: the best that any model can do",
            "excess": self.floor_nats is not None
            and f"{self.excess_nats_per_token:.4f} nats/token, {self.excess_fraction:.1%} of the floor"
            + ("" if self.left_to_learn is None else f", {self.left_to_learn:.2%} of what context tells"),
            "impossible": self.impossible
            and f"{100 * self.impossible.mean:.1f} ± {100 * self.impossible.half_width:.1f} % "
            f"of its probability is on impossible texts",
            "verdict": self.chance is not None and self.chance < IMPOSSIBLE and self.verdict(),
        }
        matters = 4 if self.scale is None else 2 if self.n_bytes else 0
        known = table((), [(name, text) for name, text in facts.items() if text], {matters: "bold"})
        return "\n\n".join([known, *(part.table() for part in (self.skills, self.answers) if part)])

    def verdict(self) -> str:
        """On a score below the floor: how often it happens to an honest model, and what is wrong here."""
        assert self.floor_nats is not None
        reasons = " and ".join(self.reasons) or "no reason was found"
        return (
            f"{self.floor_nats - self.nats:.1f} nats below the floor: of a model that has not seen the text, and does "
            f"not look ahead, this happens with probability {self.chance:.0e} at most; {reasons}"
        )

    def __str__(self) -> str:
        loss = f"loss {self.loss_nats_per_token:.4f} nats/token"
        if self.floor_nats is None:
            scale = self.scale.line(self.compared) if self.scale else ""
            bits = "" if self.bits_per_byte is None else f"{self.bits_per_byte:.4f} bits/byte "
            return f"{loss}   perplexity {self.perplexity:.2f}   {bits}{scale}".rstrip()
        return (
            f"{loss}   floor {self.floor_nats_per_token:.4f}   "
            f"excess {self.excess_nats_per_token:.4f} ({self.excess_fraction:.1%} of the floor)"
        )


@dataclass(frozen=True)
class Scores:
    """How a model scores N tokens: the place of each in its file, its -log p, and whether it was the most likely."""

    places: NDArray[np.int64]
    nats: NDArray[np.float64]
    hits: NDArray[np.bool_]


def evaluate_tokens(
    model: LanguageModel,
    tokens: TokenFile,
    tokenizer: Tokenizer,
    precision: Precision,
    *,
    truth: TokenTruth | None,
    batch_size: int,
    from_document_starts: bool,
    max_tokens: int | None = None,
    world: World = ALONE,
) -> Evaluation:
    """Scores all tokens, or about `max_tokens` of them; the ranks share the work and all get the result."""
    batches = evaluation_batches(
        tokens, model.context_length, batch_size, from_document_starts=from_document_starts, max_tokens=max_tokens
    )
    return evaluation_of(score(model, batches, precision, world), tokens, tokenizer, truth)


@torch.inference_mode()
def score(
    model: nn.Module,
    batches: Iterable[tuple[Batch, NDArray[np.int64]]],
    precision: Precision,
    world: World = ALONE,
) -> Scores:
    """Scores every target of the batches, which come with their places. Dropout is off.

    The ranks take turns at the batches. Each leaves zeros where another writes, so that the sum has everything.
    """
    places, scored = [], []
    with eval_mode(model):
        for turn, (batch, places_BT) in enumerate(batches):
            places.append(places_BT[(batch.targets_BT != IGNORE_INDEX).numpy()])
            is_mine = turn % world.size == world.rank
            scored.append(_score_batch(model, batch, precision) if is_mine else NOT_MINE.expand(2, len(places[-1])))
        if 0 < len(scored) % world.size <= world.rank:  # a sharded model computes on all ranks or not at all
            _score_batch(model, batch, precision)
    scored_2N = torch.cat(scored, dim=1)
    world.sum_together([scored_2N])
    return Scores(np.concatenate(places), scored_2N[0].numpy(), scored_2N[1].numpy().astype(bool))


def _score_batch(model: nn.Module, batch: Batch, precision: Precision) -> Tensor:
    """-log p of each target, and 1 where it is the most likely token: (2, N), float64."""
    inputs_BT, targets_BT = (tensor.to(precision.device) for tensor in batch)
    with precision.autocast():
        logits_BTV = model(inputs_BT)
    counts_BT = targets_BT != IGNORE_INDEX
    return torch.stack([x.double() for x in nats_and_hits(logits_BTV[counts_BT], targets_BT[counts_BT])]).cpu()


def nats_and_hits(logits_NV: Tensor, targets_N: Tensor) -> tuple[Tensor, Tensor]:
    """-log p(target) of each prediction, in nats (N,), and whether the target is the most likely token (N,)."""
    return cross_entropy(logits_NV, targets_N), logits_NV.max(dim=-1).indices == targets_N  # argmax is slow in bfloat16


def evaluation_of(scores: Scores, token_file: TokenFile, tokenizer: Tokenizer, truth: TokenTruth | None) -> Evaluation:
    """The figures of the scored tokens, with the truth about the same tokens if it is known."""
    tokens_N = token_file.tokens[scores.places + 1]
    bytes_V = np.array([tokenizer.is_text * len(tokenizer.token_bytes(id_)) for id_ in range(tokenizer.vocab_size)])
    evaluation = Evaluation(math.fsum(scores.nats), len(tokens_N), int(bytes_V[tokens_N].sum()), floor_nats=None)
    if tokenizer.lead:
        from pellucid.tokenizer.sentence_pieces import n_leads

        n_bytes = evaluation.n_bytes - n_leads(token_file.tokens, scores.places, tokenizer)
        evaluation = replace(evaluation, n_bytes=n_bytes)
    if truth is None:
        return evaluation
    n_documents = max(1, int(np.isin(tokens_N, tokenizer.stop_ids).sum()))
    floor_N = truth.nats[scores.places]
    counts = np.unique(tokens_N, return_counts=True)[1]
    return replace(
        evaluation,
        floor_nats=math.fsum(floor_N),
        frequency_nats=-float((counts * np.log(counts / len(tokens_N))).sum()),
        impossible=impossible_mass(by_document(scores.nats - floor_N, scores.places, token_file.boundaries)),
        skills=skill_table(truth, scores.places, scores.nats, scores.hits, n_documents),
    )
