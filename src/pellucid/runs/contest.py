"""A contest that cannot be overfitted: a trained run, scored on documents that nobody has seen.

Where the distribution of a text is known, there is always more of it, and −ln p of the new documents is their floor. So
a model gains nothing by having read any text, not even its own validation text.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pellucid.checkpoint.step_directory import State
from pellucid.config.data import CONVERSATIONS, CorpusConfig
from pellucid.config.languages import DrawnSection
from pellucid.corpora.corpus import Piece
from pellucid.corpora.drawn import Drawn
from pellucid.cost.build import training_flops
from pellucid.data.batches import evaluation_batches
from pellucid.data.prepared import pieces_as_tokens
from pellucid.errors import ConfigError, DataError
from pellucid.evaluation.estimate import Estimate, ratio
from pellucid.evaluation.loss import score
from pellucid.runtime.precision import Precision, precision_here
from pellucid.trained import TrainedModel, find_checkpoint, trained_model

# The rules of docs/contest.md for an entry that counts.
LEAST_DOCUMENTS = 1000
BELOW_PERCENT = 1


@dataclass(frozen=True)
class ContestScore:
    """A run's excess over the floor on new documents, with 95 % intervals over them, and what its training took.

    corpus: the language, with all that differs from its defaults and, if its rules are in a file, their hash.
    excess_percent: of the floor, comparable between tokenizers.   training_flops: as `pellucid cost` counts them.
    """

    run: str
    corpus: str
    documents: int
    seed: int
    floor_nats_per_token: float
    excess_nats_per_token: Estimate
    excess_percent: Estimate
    parameters: int
    training_flops: int
    training_tokens: int
    training_seconds: float
    machine: str

    def to_json(self) -> dict[str, Any]:
        """All figures, and the line."""
        figures = {name: each.to_json() if isinstance(each, Estimate) else each for name, each in vars(self).items()}
        return {**figures, "why_it_does_not_count": self.why_it_does_not_count(), "line": self.line()}

    def why_it_does_not_count(self) -> str | None:
        """The rule of docs/contest.md that keeps it out of the contest; None if it counts."""
        if not self.excess_percent.mean + self.excess_percent.half_width < BELOW_PERCENT:  # also for NaN
            return f"its excess is not below {BELOW_PERCENT} %, interval and all"
        return f"{self.documents:,} documents are too few" if self.documents < LEAST_DOCUMENTS else None

    def line(self) -> str:
        """The line for the table of docs/contest.md."""
        return (
            f"| {self.run} | {self.corpus} | {_plus_minus(self.excess_percent, 2)} | {self.training_flops:.2e} "
            f"| {self.parameters:,} | {self.training_tokens:,} | {self.training_seconds:,.0f} | {self.machine} "
            f"| `--fresh {self.documents} --seed {self.seed}` |"
        )

    def table(self) -> str:
        """All figures for a person to read, and the line."""
        per_token, percent = _plus_minus(self.excess_nats_per_token, 5), _plus_minus(self.excess_percent, 2)
        reason = self.why_it_does_not_count()
        verdict = f", which does not count: {reason}." if reason else ":"
        return f"""\
excess      {per_token} nats/token, {percent} % of the floor (95 %, over {self.documents:,} documents)
floor       {self.floor_nats_per_token:.5f} nats/token: the best that any model can do
parameters  {self.parameters:,}
training    {self.training_flops:.2e} FLOPs, {self.training_tokens:,} tokens, {self.training_seconds:,.0f} s
seed        {self.seed}: whoever gives --fresh {self.documents} --seed {self.seed} gets the same documents

The line for docs/contest.md{verdict}
{self.line()}"""


def contest_run(run: Path, which: str, *, n: int, seed: int) -> ContestScore:
    """The score of the checkpoint that RUN and best|latest|STEP name. Raises as `contest` does."""
    checkpoint, directory = find_checkpoint(run, which)
    trained = trained_model(checkpoint, directory)
    precision = precision_here(trained.config.train.device, trained.config.train.precision)
    trained.model.to(precision.device)
    return contest(trained, checkpoint.state, precision, n=n, seed=seed)


def contest(trained: TrainedModel, state: State, precision: Precision, *, n: int, seed: int) -> ContestScore:
    """The score on n new documents. Each is scored from its own start to its end.

    ConfigError for a run that cannot take part; DataError for a language with too few documents, and for an excess
    below 0, which no model can have (Gibbs' inequality).
    """
    config, corpus = trained.config, corpus_of(trained)
    try:
        flops = training_flops(config.model, trained.tokenizer.vocab_size, state.tokens)
    except RuntimeError:
        what = "the FLOPs of this model cannot be counted on fake tensors"
        raise ConfigError("model", what, "let shapes decide what it computes, not values") from None
    texts = corpus.fresh(n, seed)
    pieces = [Piece(text, ends_document=True) for text in texts]
    tokens = pieces_as_tokens("new documents", pieces, trained.tokenizer)
    length, batch_size = trained.model.context_length, config.train.batch_size
    batches = evaluation_batches(tokens, length, batch_size, from_document_starts=True)
    scores = score(trained.model, batches, precision)
    document_of_token = np.searchsorted(tokens.boundaries, scores.places, side="right") - 1
    n_tokens = np.diff(tokens.boundaries).astype(float)
    floor = np.array([-corpus.language.log_probability(text) for text in texts])
    excess = np.bincount(document_of_token, scores.nats) - floor
    excess_percent = ratio(100 * excess, floor)
    _require_above_floor(excess_percent)
    return ContestScore(
        run=config.name,
        corpus=_language_of(config.corpus, corpus),
        documents=n,
        seed=seed,
        floor_nats_per_token=float(floor.sum() / n_tokens.sum()),
        excess_nats_per_token=ratio(excess, n_tokens),
        excess_percent=excess_percent,
        parameters=sum(parameter.numel() for parameter in trained.model.parameters()),
        training_flops=flops,
        training_tokens=state.tokens,
        training_seconds=state.elapsed_seconds,
        machine=f"{state.device}, {state.processes} x {state.threads} threads",
    )


def corpus_of(trained: TrainedModel) -> Drawn:
    """The corpus of a run that can take part. ConfigError for others, CheckpointError if it has changed since."""
    config, kind = trained.config, trained.config.corpus.type
    fix = "take a run of corpus.type fables, or of a language that `pellucid configs` lists"
    if kind in CONVERSATIONS:
        raise ConfigError("corpus.type", f"{kind} are conversations, and the contest is about texts", fix)
    if not isinstance(config.corpus, DrawnSection):
        raise ConfigError("corpus.type", f"of {kind} the truth is not known, so there is no floor to compare with", fix)
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


def _require_above_floor(excess_percent: Estimate) -> None:
    if round(excess_percent.mean + excess_percent.half_width, 2) < 0:
        what = f"{_plus_minus(excess_percent, 2)} % of the floor, which no model can be below on text it has not seen"
        fix = "check whether its code or its tokens give the text away; if it is chance (1 in 40), draw other documents"
        raise DataError("the excess", what, fix)


def _plus_minus(estimate: Estimate, digits: int) -> str:
    return f"{estimate.mean:.{digits}f} ± {estimate.half_width:.{digits}f}"
