"""A contest with a proof: a trained run, scored on documents that nobody has seen.

Where the distribution of a text is known, there is always more of it, and −ln p of the new documents is their floor. So
a model gains nothing by having read any text, not even its own validation text; and a score that is too good for an
honest model is refused, with the probability that it is one (`evaluation/proof.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import xor
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pellucid.checkpoint.step_directory import MODEL_FILE, State
from pellucid.config.data import CONVERSATIONS, CorpusConfig
from pellucid.config.languages import DrawnSection
from pellucid.corpora.corpus import Piece
from pellucid.corpora.drawn import Drawn
from pellucid.data.batches import evaluation_batches
from pellucid.data.in_memory import pieces_as_tokens
from pellucid.errors import ConfigError, DataError
from pellucid.evaluation.estimate import Estimate, Floats, ratio
from pellucid.evaluation.leaks import why_below_the_floor
from pellucid.evaluation.loss import score
from pellucid.evaluation.proof import IMPOSSIBLE, by_document, chance_of, impossible_mass
from pellucid.files import sha256
from pellucid.runs.cost_of_run import cost_of_run
from pellucid.runtime.precision import Precision, precision_here
from pellucid.trained import TrainedModel, find_checkpoint, trained_model

# The rules of docs/contest.md for an entry that counts.
LEAST_DOCUMENTS = 5000
BELOW_PERCENT = 1


@dataclass(frozen=True)
class ContestScore:
    """A run's excess over the floor on new documents, with 95 % intervals over them, and what its training took.

    corpus: the language, with all that differs from its defaults and, if its rules are in a file, their hash.
    weights: the start of their hash.   is_own_seed: the documents are those that this hash draws.
    excess_percent: of the floor, comparable between tokenizers.   impossible_percent: `proof.impossible_mass`.
    training_flops: those of the model, as `pellucid cost` counts them, and of the optimizer.   training_bytes: read and
    written in training.   excess_nats, floor_nats: of each document.
    """

    run: str
    corpus: str
    documents: int
    seed: int
    weights: str
    is_own_seed: bool
    floor_nats_per_token: float
    excess_nats_per_token: Estimate
    excess_percent: Estimate
    impossible_percent: Estimate
    parameters: int
    training_flops: int
    training_bytes: int
    training_tokens: int
    training_seconds: float
    machine: str
    excess_nats: Floats = field(repr=False)
    floor_nats: Floats = field(repr=False)

    def to_json(self) -> dict[str, Any]:
        """All figures, and the line."""
        of_all = {name: each for name, each in vars(self).items() if not isinstance(each, np.ndarray)}
        figures = {name: each.to_json() if isinstance(each, Estimate) else each for name, each in of_all.items()}
        return {**figures, "why_it_does_not_count": self.why_it_does_not_count(), "line": self.line()}

    def why_it_does_not_count(self) -> str | None:
        """The rule of docs/contest.md that keeps it out of the contest; None if it counts."""
        if not self.excess_percent.mean + self.excess_percent.half_width < BELOW_PERCENT:  # also for NaN
            return f"its excess is not below {BELOW_PERCENT} %, interval and all"
        return f"{self.documents:,} documents are too few" if self.documents < LEAST_DOCUMENTS else None

    def line(self) -> str:
        """The line for the table of docs/contest.md."""
        seed = f"`--fresh {self.documents}`" if self.is_own_seed else f"`--fresh {self.documents} --seed {self.seed}`"
        return (
            f"| {self.run} | {self.corpus} | {_plus_minus(self.excess_percent, 2)} "
            f"| {_plus_minus(self.impossible_percent, 1)} | {self.training_flops:.2e} | {self.training_bytes:.1e} "
            f"| {self.parameters:,} | {self.training_tokens:,} | {self.training_seconds:,.0f} | {self.machine} "
            f"| {self.weights} | {seed} |"
        )

    def table(self) -> str:
        """All figures for a person to read, and the line."""
        from pellucid.tables import folded, table

        per_token, percent = _plus_minus(self.excess_nats_per_token, 5), _plus_minus(self.excess_percent, 2)
        reason = self.why_it_does_not_count()
        verdict = f", which does not count: {reason}." if reason else ":"
        whose = "that of these weights" if self.is_own_seed else "not that of these weights: counts if a judge drew it"
        facts = {
            "excess": f"{per_token} nats/token, {percent} % of the floor (95 %, over {self.documents:,} documents)",
            "floor": f"{self.floor_nats_per_token:.5f} nats/token: the best that any model can do",
            "impossible": f"{_plus_minus(self.impossible_percent, 1)} % of its probability is on impossible texts",
            "parameters": f"{self.parameters:,}, weights {self.weights}",
            "training": f"{self.training_flops:.2e} FLOPs, {self.training_bytes:.1e} bytes moved, "
            f"{self.training_tokens:,} tokens, {self.training_seconds:,.0f} s",
            "seed": f"{self.seed}: {whose}",
        }
        verdict = folded(f"The line for docs/contest.md{verdict}")
        return f"{table((), facts.items(), {0: 'bold'})}\n\n{verdict}\n{self.line()}"

    def against(self, other: ContestScore) -> str:
        """Which of two is better on the same documents, and whether that is settled."""
        difference = ratio(100 * (other.excess_nats - self.excess_nats), self.floor_nats)
        better, worse = (self, other) if difference.mean > 0 else (other, self)
        by = f"{abs(difference.mean):.3f} ± {difference.half_width:.3f} % of the floor, on the same documents"
        if abs(difference.mean) <= difference.half_width:
            return f"tied: {better.run} is better than {worse.run} by {by}, which chance can do"
        return f"settled: {better.run} is better than {worse.run} by {by}"


def contest_runs(runs: Sequence[Path], which: str, *, n: int, seed: int | None) -> list[ContestScore]:
    """The scores of one or several runs on the same documents, at the checkpoint best|latest|STEP of each.

    seed: if there is none, the weights of all runs give it together. So nobody who enters can choose the documents, or
    train on them without changing them. Raises as `contest` does, and ConfigError for runs of different languages.
    """
    found = [find_checkpoint(run, which) for run in runs]
    weights = [sha256(directory / MODEL_FILE) for _, directory in found]
    seed_of_weights = reduce(xor, map(seed_of, weights))
    scores = []
    for (checkpoint, directory), digest in zip(found, weights, strict=True):
        trained = trained_model(checkpoint, directory)
        precision = precision_here(trained.config.train.device, trained.config.train.precision)
        trained.model.to(precision.device)
        seed = seed_of_weights if seed is None else seed
        scores.append(contest(trained, checkpoint.state, precision, n=n, seed=seed, weights=digest))
    first = scores[0]
    if any(score.corpus != first.corpus or (score.floor_nats != first.floor_nats).any() for score in scores):
        what = "the runs were not trained on the same language, or hold out different documents of a small one"
        raise ConfigError("corpus", what, "compare runs with the same section `corpus`")
    return scores


def seed_of(weights: str) -> int:
    """The seed of the documents on which weights with this SHA-256 are scored."""
    return int(weights[:10], 16)


def contest(
    trained: TrainedModel, state: State, precision: Precision, *, n: int, seed: int, weights: str
) -> ContestScore:
    """The score on n new documents of weights with this SHA-256. Each document is scored from its start to its end.

    ConfigError for a run that cannot take part; DataError for a language with too few documents, and for an excess
    that no honest model can have.
    """
    config, corpus = trained.config, corpus_of(trained)
    try:
        trained_with = Precision(precision.device, getattr(torch, state.dtype.removeprefix("torch.")))
        cost = cost_of_run(config, trained.tokenizer.vocab_size, trained_with)
    except RuntimeError:
        what = "the FLOPs of this model cannot be counted on fake tensors"
        raise ConfigError("model", what, "let shapes decide what it computes, not values") from None
    texts = corpus.fresh(n, seed)
    tokens = pieces_as_tokens("new documents", [Piece(text, ends_document=True) for text in texts], trained.tokenizer)
    length, batch_size = trained.model.context_length, config.train.batch_size
    batches = evaluation_batches(tokens, length, batch_size, from_document_starts=True)
    scores = score(trained.model, batches, precision)
    n_tokens = np.diff(tokens.boundaries).astype(float)
    nats_F = np.array([-corpus.language.log_probability(text) for text in texts])
    floor_F = nats_F + math.log1p(-corpus.share_held_out())  # none is held out: that makes each a little likelier
    excess_F = by_document(scores.nats, scores.places, tokens.boundaries) - floor_F
    _require_possible(excess_F, why_below_the_floor(trained.model, tokens, precision))
    impossible, flops_per_token = impossible_mass(excess_F), cost.model.training_flops_per_token.total
    return ContestScore(
        run=config.name,
        corpus=_language_of(config.corpus, corpus),
        documents=n,
        seed=seed,
        weights=weights[:12],
        is_own_seed=seed == seed_of(weights),
        floor_nats_per_token=float(floor_F.sum() / n_tokens.sum()),
        excess_nats_per_token=ratio(excess_F, n_tokens),
        excess_percent=ratio(100 * excess_F, floor_F),
        impossible_percent=Estimate(100 * impossible.mean, 100 * impossible.half_width),
        parameters=sum(parameter.numel() for parameter in trained.model.parameters()),
        training_flops=state.tokens * flops_per_token + state.step * cost.optimizer_work.flops,
        training_bytes=state.step * cost.step_work.bytes_moved,
        training_tokens=state.tokens,
        training_seconds=state.elapsed_seconds,
        machine=f"{state.device}, {state.processes} x {state.threads} threads",
        excess_nats=excess_F,
        floor_nats=floor_F,
    )


def corpus_of(trained: TrainedModel) -> Drawn:
    """The corpus of a run that can take part. ConfigError for others, CheckpointError if it has changed since."""
    config, kind = trained.config, trained.config.corpus.type
    fix = "take a run of corpus.type fables, or of a language that `pellucid configs` lists"
    if kind in CONVERSATIONS:
        raise ConfigError("corpus.type", f"{kind} are conversations, and the contest is about texts", fix)
    if not isinstance(config.corpus, DrawnSection):
        raise ConfigError("corpus.type", f"of {kind} the truth is not known, so there is no floor to compare with", fix)
    if config.objective.type != "next_token":
        what = f"{config.objective.type} learns from more than the text that the language writes"
        raise ConfigError("objective.type", what, "take a run of objective.type next_token")
    if config.start_from is not None:
        what = f"the run starts from {config.start_from}, whose FLOPs would be missing"
        raise ConfigError("start_from", what, "take a run that begins with weights of its own")
    corpus = trained.corpus()
    assert isinstance(corpus, Drawn)
    return corpus


def _language_of(section: CorpusConfig, corpus: Drawn) -> str:
    """The language of a corpus in a few words; of rules, which a file of any name may hold, the start of their hash."""
    changes = section.model_dump(exclude={"type", *DrawnSection.model_fields}, exclude_defaults=True)
    if rules := corpus.identity.get("rules_sha256"):
        changes["rules"] = str(rules)[:8]
    return ", ".join([section.type, *(f"{name} {value}" for name, value in changes.items())])


def _require_possible(excess_F: Floats, reasons: list[str]) -> None:
    chance = chance_of(float(excess_F.sum()))
    if chance >= IMPOSSIBLE and not reasons:
        return
    what = f"{excess_F.sum():+,.1f} nats in {len(excess_F):,} documents"
    if chance < IMPOSSIBLE:
        what += f", which an honest model has with probability {chance:.0e} at most"
    fix = " and ".join(reasons) or "no reason was found: look for one in its code and in its tokens"
    raise DataError("the excess", what, fix)


def _plus_minus(estimate: Estimate, digits: int) -> str:
    return f"{estimate.mean:.{digits}f} ± {estimate.half_width:.{digits}f}"
