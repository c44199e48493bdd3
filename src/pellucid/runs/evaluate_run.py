"""Evaluation of a trained model on held-out data, by the task it was trained for."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pellucid.checkpoint.run_directory import find_step_directory
from pellucid.checkpoint.step_directory import read_checkpoint
from pellucid.config.load import load_run_config
from pellucid.config.run import LEARNS_FROM_PAIRS, RunConfig
from pellucid.config.shipped import find_config, find_run
from pellucid.corpora.build import DOWNLOADS, build_corpus
from pellucid.data.in_memory import text_as_tokens
from pellucid.data.prepare import Manifest, fingerprint_of, read_manifest
from pellucid.data.prepared import PreparedData, opened
from pellucid.errors import TEXT_FILE, CheckpointError, ConfigError, Fix, Option, PellucidError
from pellucid.evaluation.leaks import why_below_the_floor
from pellucid.evaluation.loss import Evaluation, evaluate_tokens
from pellucid.evaluation.proof import IMPOSSIBLE
from pellucid.objectives.task import Validation
from pellucid.recipe import build_first_model, build_task, evaluate, prepare_data
from pellucid.runs.start_from import base_of
from pellucid.runtime.precision import Precision
from pellucid.trained import TrainedModel, config_of, load_trained_model

if TYPE_CHECKING:
    from pellucid.evaluation.answers import AnswerTable
    from pellucid.evaluation.choosing import Choices

_log = logging.getLogger(__name__)

N_ANSWERS = 200
N_SAMPLES = 8
ASK = "hops", "sums"  # corpora


def evaluate_run(
    trained: TrainedModel,
    precision: Precision,
    data_root: Path,
    directory: Path,
    where: str,
    n_answers: int | None = None,
    n_samples: int | None = None,
) -> Validation:
    """Results on the validation data: the loss of its text, and its answers (see `evaluate_on_own_text`).

    For reward models and preferences: how well the model knows the better of two answers. DPO needs for that the
    weights that it started from, which its step directory (`directory`) names. CheckpointError, at `where`: gone.
    """
    config = trained.config
    knows_pairs = config.objective.type == "reward_model" or config.corpus.type == "preferences"
    if config.objective.type not in LEARNS_FROM_PAIRS or not knows_pairs or n_answers or n_samples:
        return evaluate_on_own_text(trained, precision, data_root, where, n_answers, n_samples)
    data, first = data_of_trained(trained, data_root, where), trained.model
    if base := base_of(config, (read_checkpoint(directory), directory)):
        first = build_first_model(config, data, base).to(precision.device)
    return build_task(config, data, first, precision).evaluate(trained.model, None)


def evaluate_on_own_text(
    trained: TrainedModel,
    precision: Precision,
    data_root: Path,
    where: str,
    n_answers: int | None = None,
    n_samples: int | None = None,
) -> Evaluation:
    """Scores a trained model on the validation tokens of its training, made again in `data_root` if they are gone.

    n_answers: so many held-out instructions it also answers (default: 200, where its corpus is instructions), or so
    many questions of hops and sums, n_samples times each (default: 200 and 8, if one of both is given).
    CheckpointError, at `where`, if the tokens are gone and the corpus has changed since; DataError: it has no corpus.
    """
    is_asked = trained.config.corpus.type == "instructions" and trained.config.objective.type != "reward_model"
    if (n_answers or n_samples) and not (trained.config.corpus.type in ASK or (is_asked and not n_samples)):
        raise _nothing_to_judge(n_samples)
    data = data_of_trained(trained, data_root, where)
    evaluation = _with_reasons(evaluate(trained.config, data, trained.model, precision), trained, data, precision)
    n_answers = N_ANSWERS if n_answers is None and (is_asked or n_samples) else n_answers
    if not n_answers:
        return evaluation
    if trained.config.corpus.type in ASK:
        return replace(evaluation, answers=choices_of_run(trained, precision, n_answers, n_samples or N_SAMPLES))
    return replace(evaluation, answers=answers_of_run(trained, precision, n_answers))


def data_of_trained(trained: TrainedModel, data_root: Path, where: str) -> PreparedData:
    """The tokens that it was trained on, prepared again if they are gone.

    CheckpointError, at `where`, if they are gone and the corpus has changed.
    """
    data = data_of_run(trained.config, trained.data_fingerprint, data_root)
    if data is None or data.tokenizer.to_json() != trained.tokenizer.to_json():
        raise _tokens_are_gone(where, data_root)
    return data


def answers_of_run(trained: TrainedModel, precision: Precision, n: int) -> AnswerTable:
    """How well a run answers n held-out instructions; and how far it went from the run that it started from.

    That is None if the other is gone, or knew no instructions.
    """
    from pellucid.corpora.instructions import InstructionsCorpus
    from pellucid.evaluation.answers import answer_table, judge_answers

    corpus = trained.corpus()
    assert isinstance(corpus, InstructionsCorpus)
    reference = None
    if trained.config.base_run is not None:
        with suppress(CheckpointError):
            base = load_trained_model(find_step_directory(*trained.config.base_run))
            if base.tokenizer.to_json() == trained.tokenizer.to_json():
                reference = base.model.to(precision.device)
    answers = judge_answers(trained.model, trained.tokenizer, corpus, precision, n=n, reference=reference)
    return answer_table(answers, trained.config.start_from)


def choices_of_run(trained: TrainedModel, precision: Precision, n: int, n_samples: int) -> Choices:
    """How a run answers a question of each of n held-out documents, and what it is worth to ask several times."""
    from pellucid.corpora.drawn import Drawn
    from pellucid.evaluation.choosing import Choices, answer_questions
    from pellucid.languages.symbols import SymbolLanguage

    corpus = trained.corpus()
    assert isinstance(corpus, Drawn)
    assert isinstance(corpus.language, SymbolLanguage)
    asked = corpus.language, corpus.documents("validation"), precision
    return Choices(answer_questions(trained.model, trained.tokenizer, *asked, n=n, n_samples=n_samples))


def evaluate_on(trained: TrainedModel, precision: Precision, other: Path, data_root: Path) -> Evaluation:
    """Scores a trained model on the validation text of another run or config.

    On that of the run that it started from, this measures what fine-tuning made it forget. ConfigError if the other has
    another vocabulary.
    """
    other = find_run(other)
    if other.is_dir():
        step_directory = find_step_directory(other, "best")
        checkpoint = read_checkpoint(step_directory)
        config = config_of(checkpoint, str(step_directory))
        data = data_of_run(config, checkpoint.state.data_fingerprint, data_root)
    else:
        data = prepare_data(load_run_config(find_config(other)), data_root)
    if data is None:
        raise _tokens_are_gone(str(other), data_root)
    if trained.tokenizer.to_json() not in (data.tokenizer.to_json(), data.tokenizer.with_chat_tokens().to_json()):
        what = "its text was made into tokens of another vocabulary than that of the run"
        fix = Fix("name the run that it started from, or a text with {}", TEXT_FILE)
        raise ConfigError(Option("--on", "on"), f"{other}: {what}", fix)
    evaluation = evaluate(trained.config, data, trained.model, precision)
    if data.fingerprint != trained.data_fingerprint:  # it was not trained on that
        evaluation = replace(evaluation, scale=evaluation.scale and data.scale)
    return _with_reasons(evaluation, trained, data, precision)


def evaluate_text(trained: TrainedModel, precision: Precision, file: Path) -> Evaluation:
    """Scores a trained model on a text file, as one document. No floor: nobody knows the truth about any text."""
    if trained.config.objective.type == "masked":
        what = f"{trained.config.name} fills gaps, and is scored on the documents of its corpus alone"
        raise ConfigError(TEXT_FILE, what, "leave it out, or take a run of objective next_token")
    return evaluate_tokens(
        trained.model,
        text_as_tokens(file, trained.tokenizer),
        trained.tokenizer,
        precision,
        truth=None,
        batch_size=trained.config.train.batch_size,
        from_document_starts=False,
    )


def data_of_run(config: RunConfig, fingerprint: str, data_root: Path) -> PreparedData | None:
    """The tokens that a run was trained on, from `data_root` even if its corpus has changed, or prepared again.

    None if they are gone and the corpus has changed. Raises as `prepare_data` does.
    """
    directory = data_root / f"{config.corpus.type}-{fingerprint}"
    manifest = read_manifest(directory, fingerprint)
    if manifest is None:
        data = prepare_data(config, data_root)
        return data if data.fingerprint == fingerprint else None
    if _fingerprint_now(config, manifest, data_root) != fingerprint:
        _log.warning("the corpus has changed since training; the tokens of then are used, in %s", directory)
    return opened(directory, manifest)


def _fingerprint_now(config: RunConfig, manifest: Manifest, data_root: Path) -> str | None:
    """The fingerprint that the data would get if it were prepared now; None if its corpus cannot be read."""
    with suppress(PellucidError):
        return fingerprint_of(build_corpus(config.corpus, data_root / DOWNLOADS.name).identity, manifest.tokenizer)
    return None


def _with_reasons(
    evaluation: Evaluation, trained: TrainedModel, data: PreparedData, precision: Precision
) -> Evaluation:
    """Says why, if no honest model could have such a score."""
    if evaluation.chance is None or evaluation.chance >= IMPOSSIBLE:
        return evaluation
    reasons = why_below_the_floor(trained.model, data.validation, precision, data.train)
    return replace(evaluation, reasons=tuple(reasons))


def _nothing_to_judge(n_samples: int | None) -> ConfigError:
    if n_samples:
        what = "only questions of hops and sums have one right answer, for which to ask several times"
        return ConfigError(Option("--samples", "samples"), what, "leave it out")
    what = "only of a model that follows instructions about fables, or is asked questions, is it known what is right"
    fix = "leave it out, or take a run of corpus.type instructions, hops or sums"
    return ConfigError(Option("--answers", "answers"), what, fix)


def _tokens_are_gone(where: str, data_root: Path) -> CheckpointError:
    what = f"its corpus has changed, and its tokens are no longer in {data_root}"
    return CheckpointError(where, what, Fix("bring the text back as it was, or score any text with {}", TEXT_FILE))
