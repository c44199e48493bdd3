"""From a config, prepared data and a model to its evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import torch

from pellucid.checkpoint.build import TrainedModel, config_of, load_trained_model
from pellucid.checkpoint.run_directory import find_step_directory
from pellucid.checkpoint.step_directory import read_checkpoint
from pellucid.config.load import load_run_config
from pellucid.config.run import RunConfig
from pellucid.config.shipped import find_config
from pellucid.corpora.build import build_corpus
from pellucid.corpora.corpus import Corpus, KnownCorpus, Piece
from pellucid.corpora.fables import FablesCorpus
from pellucid.corpora.fables.told import PROPERTIES
from pellucid.corpora.instructions import InstructionsCorpus
from pellucid.data.batches import evaluation_batches
from pellucid.data.build import PreparedData, data_of_run, prepare_data, text_as_tokens
from pellucid.errors import CheckpointError, ConfigError, DataError
from pellucid.evaluation.answers import AnswerTable, answer_table, judge_answers
from pellucid.evaluation.attention_maps import attention_maps
from pellucid.evaluation.attribution import HeadTable, attribute
from pellucid.evaluation.embed import Embeddings, Layer, Pooling, embed
from pellucid.evaluation.explain import beginning_that_fits, explain, validation_document
from pellucid.evaluation.explanation import Explanation
from pellucid.evaluation.head_scores import head_scores
from pellucid.evaluation.interventions import Place
from pellucid.evaluation.knock_out import KnockOutTable, held_out_fables, knock_out_table
from pellucid.evaluation.loss import Evaluation, evaluation_of, score
from pellucid.evaluation.probe import ProbeTable, probe
from pellucid.evaluation.trace import the_decoder, trace_text
from pellucid.model.build import build_model
from pellucid.model.language_model import LanguageModel
from pellucid.runtime.distributed import ALONE, World
from pellucid.runtime.precision import Precision

N_ANSWERS = 200


def evaluate(
    config: RunConfig,
    data: PreparedData,
    model: LanguageModel,
    precision: Precision,
    max_tokens: int | None = None,
    world: World = ALONE,
) -> Evaluation:
    """Scores the whole validation part, or about `max_tokens` of it; the ranks share the work and all get the result.

    Documents are scored from their own start where rows are packed so, and where the truth is known: the floor is the
    probability of whole documents.
    """
    batches = evaluation_batches(
        data.validation,
        model.context_length,
        config.train.batch_size,
        from_document_starts=data.truth is not None or config.data.packing == "documents",
        max_tokens=max_tokens,
    )
    return evaluation_of(score(model, batches, precision, world), data.validation, data.tokenizer, data.truth)


def evaluate_run(
    trained: TrainedModel, precision: Precision, data_root: Path, where: str, n_answers: int | None = None
) -> Evaluation:
    """Scores a trained model on the validation tokens of its training, made again in `data_root` if they are gone.

    n_answers: so many held-out instructions it also answers (default: 200, where its corpus is instructions).
    CheckpointError, at `where`, if the tokens are gone and the corpus has changed since; DataError: it has no corpus.
    """
    is_asked = trained.config.corpus.type == "instructions" and trained.config.objective.type != "reward_model"
    if n_answers and not is_asked:
        what = "only of a model that follows instructions about fables is it known if it obeys"
        raise ConfigError("--answers", what, "leave it out, or take a run of corpus.type instructions")
    data = data_of_trained(trained, data_root, where)
    evaluation = evaluate(trained.config, data, trained.model, precision)
    n_answers = N_ANSWERS if n_answers is None and is_asked else n_answers
    return replace(evaluation, answers=answers_of_run(trained, precision, n_answers)) if n_answers else evaluation


def data_of_trained(trained: TrainedModel, data_root: Path, where: str) -> PreparedData:
    """The tokens of its training, made again if they are gone. CheckpointError, at `where`, if they are others now."""
    data = data_of_run(trained.config, trained.data_fingerprint, data_root)
    if data is None or data.tokenizer.to_json() != trained.tokenizer.to_json():
        what = f"its corpus has changed, and its tokens are no longer in {data_root}"
        raise CheckpointError(where, what, "bring the text back as it was, or score any text with --text FILE")
    return data


def answers_of_run(trained: TrainedModel, precision: Precision, n: int) -> AnswerTable:
    """How well a run answers n held-out instructions; and how far it went from the run that it started from.

    That is None if the other is gone, or knew no instructions.
    """
    corpus = build_corpus(trained.config.corpus)
    assert isinstance(corpus, InstructionsCorpus)
    reference = None
    if trained.config.base_run is not None:
        with suppress(CheckpointError):
            base = load_trained_model(find_step_directory(*trained.config.base_run))
            if base.tokenizer.to_json() == trained.tokenizer.to_json():
                reference = base.model.to(precision.device)
    answers = judge_answers(trained.model, trained.tokenizer, corpus, precision, n=n, reference=reference)
    return answer_table(answers, trained.config.start_from)


def evaluate_on(trained: TrainedModel, precision: Precision, other: Path, data_root: Path) -> Evaluation:
    """Scores a trained model on the validation text of another run or config: of the run that it started from, say.

    So it is measured what fine-tuning has made it forget. ConfigError if the other spells its text with other tokens.
    """
    if other.is_dir():
        step_directory = find_step_directory(other, "best")
        that = read_checkpoint(step_directory)
        data = data_of_run(config_of(that, str(step_directory)), that.state.data_fingerprint, data_root)
    else:
        data = prepare_data(load_run_config(find_config(other)), data_root)
    if data is None:
        what = f"its corpus has changed, and its tokens are no longer in {data_root}"
        raise CheckpointError(str(other), what, "bring the text back as it was, or score any text with --text FILE")
    if trained.tokenizer.to_json() not in (data.tokenizer.to_json(), data.tokenizer.with_chat_tokens().to_json()):
        what = "its text was made into tokens of another vocabulary than that of the run"
        raise ConfigError("--on", f"{other}: {what}", "name the run that it started from, or a text with --text FILE")
    return evaluate(trained.config, data, trained.model, precision)


def evaluate_text(trained: TrainedModel, precision: Precision, file: Path) -> Evaluation:
    """Scores a trained model on a text file, as one document. No floor: nobody knows the truth about any text."""
    tokens = text_as_tokens(file, trained.tokenizer)
    batches = evaluation_batches(
        tokens, trained.model.context_length, trained.config.train.batch_size, from_document_starts=False
    )
    return evaluation_of(score(trained.model, batches, precision), tokens, trained.tokenizer, truth=None)


def explain_run(
    trained: TrainedModel, prompt: str | None, *, number: int, n_candidates: int, attention: str | None = None
) -> Explanation:
    """Explains a prompt or, without one, the number-th document held out, from 1.

    attention: of which heads the maps are shown, "all" or LAYER.HEAD. A prompt needs no text files, which a run copied
    to another machine lacks.
    """
    decoder, tokenizer, length = trained.model, trained.tokenizer, trained.model.context_length
    is_fables = trained.config.corpus.type == "fables"
    corpus = build_corpus(trained.config.corpus) if prompt is None or is_fables else None
    if corpus is None or prompt is not None:
        piece, source = Piece(prompt or "", ends_document=False), "a prompt"
    else:
        piece = validation_document(corpus, number, tokenizer, length)
        source = f"held-out {'fable' if is_fables else 'document'} {number}"
    known = corpus if isinstance(corpus, KnownCorpus) and tokenizer.has_words else None
    explanation = explain(decoder, tokenizer, piece, known, context_length=length, n_candidates=n_candidates)
    maps = attention_maps(trace_text(decoder, tokenizer, explanation.text), attention) if attention else None
    model = f"{trained.config.name}, step {trained.step:,}"
    return replace(explanation, attention=maps, model=model, source=source)


def embed_run(
    trained: TrainedModel, texts: Sequence[str] | None, *, layer: Layer, pooling: Pooling | None, most: int = 1
) -> Embeddings:
    """The vectors of these texts or, without any, of at most so many documents held out."""
    texts = texts or held_out_texts(trained, build_corpus(trained.config.corpus), most)
    return embed(trained.model, trained.tokenizer, texts, layer, pooling)


def held_out_texts(trained: TrainedModel, corpus: Corpus, most: int) -> list[str]:
    """The first documents held out; of a long one, the whole words that fit into the context. DataError: none."""
    length, tokenizer = trained.model.context_length, trained.tokenizer
    enough = length * max(len(tokenizer.token_bytes(id_)) for id_ in range(tokenizer.vocab_size))  # characters
    texts, text, is_taken = [], "", False
    for piece in corpus.pieces("validation"):
        if not is_taken:
            text += piece.text
            is_taken = piece.ends_document or len(text) >= enough
            if is_taken and (beginning := beginning_that_fits(tokenizer, text, length - 1)):  # after the end_of_text
                texts.append(beginning)
        if len(texts) == most:
            break
        if piece.ends_document:
            text, is_taken = "", False
    if not texts:
        raise DataError("the corpus", "no document is held out that fits into the context", "give one with --text")
    return texts


def told_by_texts(trained: TrainedModel, texts: Sequence[str], name: str | None) -> list[str] | None:
    """A property of each fable; None for other texts if none is named. ConfigError: there is no such property."""
    is_asked = name is not None
    if not is_asked and trained.config.corpus.type != "fables":
        return None
    name = name or "plot"
    if name not in PROPERTIES:
        raise ConfigError("--colour", f"there is no property {name!r}", f"choose one of {', '.join(PROPERTIES)}")
    try:
        told = list(map(fables_of(trained, "--colour").told_by, texts))
    except DataError:
        if is_asked:
            raise
        return None
    return [properties[name].value if name in properties else "not told yet" for properties in told]


def probe_run(trained: TrainedModel, texts: Sequence[str] | None, *, most: int) -> ProbeTable:
    """Probes the model, and the same with its first weights, at these fables or, without any, at those held out."""
    fables = fables_of(trained, "--probe")
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(trained.config.seed)
        untrained = build_model(trained.config.model, trained.tokenizer.vocab_size)
    untrained.to(next(trained.model.parameters()).device)
    return probe(trained.model, untrained, trained.tokenizer, fables, texts or held_out_texts(trained, fables, most))


def knock_out_run(
    trained: TrainedModel, knock_outs: Sequence[Sequence[Place]] | None, *, n_fables: int
) -> KnockOutTable:
    """What it costs each skill to knock these places out, each entry together, or every head and sublayer alone."""
    fables = fables_of(trained, "knock_out")
    model = the_decoder(trained.model, "knock_out")
    sample = held_out_fables(fables, trained.tokenizer, model.context_length, n_fables)
    return knock_out_table(model, sample, fables.skills, knock_outs)


def heads_of_run(trained: TrainedModel, *, n_fables: int) -> HeadTable:
    """Where the heads look and, if the run's text is Fables, what work each does for the skills."""
    model, tokenizer = the_decoder(trained.model, "heads"), trained.tokenizer
    scores = head_scores(model, tokenizer)
    if trained.config.corpus.type != "fables" or not tokenizer.has_words:
        return HeadTable(scores, attribution=None)
    corpus = fables_of(trained, "heads")
    fables = held_out_fables(corpus, tokenizer, model.context_length, n_fables)
    return HeadTable(scores, attribute(model, tokenizer, corpus, fables))


def fables_of(trained: TrainedModel, where: str) -> FablesCorpus:
    """The run's corpus. ConfigError if no grammar knows what its texts tell."""
    corpus = build_corpus(trained.config.corpus)
    if not isinstance(corpus, FablesCorpus):
        raise ConfigError(where, "only of Fables is it known what a text tells", "take a run of corpus.type fables")
    return corpus
