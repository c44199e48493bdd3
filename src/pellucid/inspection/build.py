"""Explanations, embeddings, probes, knock-outs and head tables of a trained run."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice

from pellucid.config.data import CONVERSATIONS, READ_FROM_FILES, CorpusConfig
from pellucid.config.gaps import require_next_tokens
from pellucid.config.languages import DrawnSection
from pellucid.corpora.corpus import Corpus, Piece
from pellucid.corpora.drawn import Drawn
from pellucid.errors import CheckpointError, ConfigError, DataError, Fix, Option
from pellucid.inspection.attention_maps import attention_maps
from pellucid.inspection.attribution import HeadTable, attribute
from pellucid.inspection.embed import Embeddings, Layer, Pooling, embed
from pellucid.inspection.explain import (
    NO_TRUTH,
    beginning_that_fits,
    explain,
    validation_document,
    validation_documents,
)
from pellucid.inspection.explanation import Explanation
from pellucid.inspection.head_scores import HeadScores, head_scores
from pellucid.inspection.interventions import Place
from pellucid.inspection.knock_out import N_DOCUMENTS, KnockOutTable, held_out_documents, knock_out_table
from pellucid.inspection.probe import ProbeTable, probe
from pellucid.inspection.trace import Trace, require_decoder, trace_text
from pellucid.languages.fables import Fables
from pellucid.languages.fables.reading import PROPERTIES
from pellucid.trained import TrainedModel

COLOUR = Option("--colour", "colour")


def explain_run(
    trained: TrainedModel, prompt: str | None, *, number: int, n_candidates: int, attention: str | None = None
) -> Explanation:
    """Explain a prompt or, without one, the number-th held-out document, from 1.

    attention: also the maps of "all" heads, or of one, LAYER.HEAD. A prompt needs no text files, which a run that was
    copied to another machine lacks. If its rules are gone or have changed since, a prompt is explained without a truth.
    """
    decoder, tokenizer, length = trained.model, trained.tokenizer, trained.model.context_length
    kind = trained.config.corpus.type
    writes_text = kind not in (*READ_FROM_FILES, "none")
    corpus, lost = None, None
    try:
        corpus = trained.corpus() if prompt is None or writes_text else None
    except (CheckpointError, DataError) as error:
        if prompt is None:
            raise
        lost = f"the truth is not shown: {error}"
    if corpus is None or prompt is not None:
        piece, source = Piece(prompt or "", ends_document=False), "a prompt"
    else:
        piece = validation_document(corpus, number, tokenizer, length)
        source = f"held-out {'fable' if kind == 'fables' else 'document'} {number}"
    language = corpus.language if isinstance(corpus, Drawn) and tokenizer.has_words else None
    traced: Callable[..., Trace] = trace_text
    if trained.config.objective.type == "masked":
        from pellucid.inspection.gaps import explain_gaps, trace_gaps

        traced, explanation = trace_gaps, explain_gaps(decoder, tokenizer, piece.text, language, n_candidates)
    else:
        explanation = explain(decoder, tokenizer, piece, language, context_length=length, n_candidates=n_candidates)
    maps = None
    if attention:
        trace = traced(decoder, tokenizer, explanation.text)
        maps = attention_maps(trace.texts, trace.attention, attention)
    model = f"{trained.config.name}, step {trained.step:,}"
    notes = [lost, *(note for note in explanation.notes if note != NO_TRUTH)] if lost else explanation.notes
    return replace(explanation, attention=maps, model=model, source=source, notes=notes)


def embed_run(
    trained: TrainedModel, texts: Sequence[str] | None, *, layer: Layer, pooling: Pooling | None, most: int = 1
) -> Embeddings:
    """The vectors of these texts or, without any, of at most `most` held-out documents."""
    texts = texts or held_out_texts(trained, trained.corpus(), most)
    return embed(trained.model, trained.tokenizer, texts, layer, pooling)


def held_out_texts(trained: TrainedModel, corpus: Corpus, most: int) -> list[str]:
    """The first held-out documents, each cut to the words that fit into the context. DataError if there are none."""
    length, tokenizer = trained.model.context_length, trained.tokenizer
    documents = validation_documents(corpus, tokenizer, length)
    beginnings = (beginning_that_fits(tokenizer, each.text, length - 1) for each in documents)  # after the end_of_text
    texts = list(islice(filter(None, beginnings), most))
    if not texts:
        fix = Fix("give one with {}", Option("--text", "text"))
        raise DataError("the corpus", "no document is held out that fits into the context", fix)
    return texts


def property_of_texts(trained: TrainedModel, texts: Sequence[str], name: str | None) -> list[str] | None:
    """A property of each fable; None for other texts, unless one is named. ConfigError if there is no such property."""
    is_asked = name is not None
    if not is_asked and trained.config.corpus.type != "fables":
        return None
    name = name or "plot"
    if name not in PROPERTIES:
        raise ConfigError(COLOUR, f"there is no property {name!r}", f"choose one of {', '.join(PROPERTIES)}")
    try:
        properties_of_texts = list(map(fables_of(trained, COLOUR).told_by, texts))
    except DataError:
        if is_asked:
            raise
        return None
    return [properties[name].value if name in properties else "not told yet" for properties in properties_of_texts]


def probe_run(trained: TrainedModel, texts: Sequence[str] | None, *, most: int) -> ProbeTable:
    """Probe the model, and one with its initial weights, on these fables or, without any, on held-out ones."""
    fables = fables_of(trained, "probe")
    texts = texts or held_out_texts(trained, trained.corpus(), most)
    return probe(trained.model, trained.untrained(), trained.tokenizer, fables, texts)


def knock_out_run(
    trained: TrainedModel, knock_outs: Sequence[Sequence[Place]] | None, *, n_documents: int
) -> KnockOutTable:
    """The cost for each skill of knocking out the places of each entry together, or every head and sublayer alone."""
    require_next_tokens(trained.config)
    corpus = known_corpus_of(trained, "knock_out")
    model = require_decoder(trained.model, "knock_out")
    documents = held_out_documents(corpus, trained.tokenizer, model.context_length, n_documents)
    return knock_out_table(model, documents, corpus.language.skills, knock_outs)


def heads_of_run(trained: TrainedModel, *, n_documents: int) -> HeadTable:
    """The scores of the heads and, if the distribution of the run's text is known, the skills that each serves."""
    require_next_tokens(trained.config)
    model, tokenizer = require_decoder(trained.model, "heads"), trained.tokenizer
    scores = scores_of_run(trained)
    if not knows_skills(trained.config.corpus) or not tokenizer.has_words:
        return HeadTable(scores, attribution=None)
    corpus = known_corpus_of(trained, "heads")
    documents = held_out_documents(corpus, tokenizer, model.context_length, n_documents)
    return HeadTable(scores, attribute(model, tokenizer, corpus.language, documents))


def scores_of_run(trained: TrainedModel) -> list[HeadScores]:
    """The scores of the heads on random tokens; of a known language, on some of its own: others may be untrained."""
    model, tokenizer, tokens = require_decoder(trained.model, "heads"), trained.tokenizer, None
    if knows_skills(trained.config.corpus):
        pieces = islice(trained.corpus().pieces("validation"), N_DOCUMENTS)
        tokens = {token for piece in pieces for token in tokenizer.encode(piece.text)}
    return head_scores(model, tokenizer, tokens=tokens)


def known_corpus_of(trained: TrainedModel, where: str) -> Drawn:
    """The run's corpus. ConfigError unless its distribution is known, and with it the skills."""
    corpus = trained.corpus() if knows_skills(trained.config.corpus) else None
    if not isinstance(corpus, Drawn):
        fix = "take a run of corpus.type fables, or of a language that `pellucid configs` lists"
        raise ConfigError(where, f"of {trained.config.corpus.type} it is not known which skills a text takes", fix)
    return corpus


def knows_skills(corpus: CorpusConfig) -> bool:
    """Whether this is a corpus of texts from a known language. Instructions are conversations about one."""
    return isinstance(corpus, DrawnSection) and corpus.type not in CONVERSATIONS


def fables_of(trained: TrainedModel, where: str | Option) -> Fables:
    """The language of the run's corpus. ConfigError unless it is Fables."""
    language = getattr(trained.corpus(), "language", None)
    if not isinstance(language, Fables):
        raise ConfigError(where, "only of Fables is it known what a text tells", "take a run of corpus.type fables")
    return language
