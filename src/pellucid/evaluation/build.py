"""From a config, prepared data and a model to its evaluation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pellucid.checkpoint.build import TrainedModel
from pellucid.config.run import RunConfig
from pellucid.corpora.build import build_corpus
from pellucid.corpora.corpus import KnownCorpus, Piece
from pellucid.data.batches import evaluation_batches
from pellucid.data.build import PreparedData, data_of_run, text_as_tokens
from pellucid.errors import CheckpointError
from pellucid.evaluation.attention_maps import attention_maps
from pellucid.evaluation.explain import explain, validation_document
from pellucid.evaluation.explanation import Explanation
from pellucid.evaluation.loss import Evaluation, evaluation_of, score
from pellucid.evaluation.trace import trace_text
from pellucid.model.language_model import LanguageModel
from pellucid.runtime.distributed import ALONE, World
from pellucid.runtime.precision import Precision


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


def evaluate_run(trained: TrainedModel, precision: Precision, data_root: Path, where: str) -> Evaluation:
    """Scores a trained model on the validation tokens of its training, made again in `data_root` if they are gone.

    CheckpointError, at `where`, if they are gone and the corpus has changed since.
    """
    data = data_of_run(trained.config, trained.data_fingerprint, data_root)
    if data is None or data.tokenizer.to_json() != trained.tokenizer.to_json():
        what = f"its corpus has changed, and its tokens are no longer in {data_root}"
        raise CheckpointError(where, what, "bring the text back as it was, or score any text with --text FILE")
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
    known = corpus if isinstance(corpus, KnownCorpus) else None
    explanation = explain(decoder, tokenizer, piece, known, context_length=length, n_candidates=n_candidates)
    maps = attention_maps(trace_text(decoder, tokenizer, explanation.text), attention) if attention else None
    model = f"{trained.config.name}, step {trained.step:,}"
    return replace(explanation, attention=maps, model=model, source=source)
