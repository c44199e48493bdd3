"""Makes an explanation of a text: the model's predictions at each token, and the exact truth.

Shapes: T places (before each token, and after the last), V vocabulary, S skills, O outcomes: characters, or all tokens
and one more for characters that no token can write.
"""

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pellucid.corpora.corpus import Corpus, Piece
from pellucid.data.token_truth import TokenTruth
from pellucid.data.truth import UNWRITABLE, Distribution, skill_characters
from pellucid.errors import ConfigError, Option
from pellucid.evaluation.skills import skill_table
from pellucid.inspection.explain_truth import TextTruth, truth_of_text
from pellucid.inspection.explanation import NO_TOKEN, Candidate, Explanation, Forecast, TokenRow, after
from pellucid.inspection.inside import has_experts
from pellucid.inspection.trace import trace
from pellucid.languages.language import Language
from pellucid.model.language_model import eval_mode
from pellucid.tokenizer import Tokenizer
from pellucid.tokenizer.pieces import END, token_text, visible
from pellucid.tokenizer.tokenizer import WORD

Floats = NDArray[np.float64]

CANDIDATES_PER_ROW = 3
NO_TRUTH = "the true distribution of this corpus is not known, so only the model is shown"
BY_CHARACTER = (
    "the text stops inside a word or after a blank, where the tokens of no document begin like these. So the next "
    "token has no exact truth, and what comes next is shown by character: the model's tokens are summed by their first "
    "character. Training never showed the model such a beginning, so the sums say little about what it has learned"
)
LACKS_A_CHARACTER = (
    f"{NO_TOKEN} stands for a character that may come next but is missing from the model's vocabulary: the model gives "
    "it probability 0, which makes the KL infinite"
)


def validation_document(corpus: Corpus, number: int, tokenizer: Tokenizer, context_length: int) -> Piece:
    """The number-th held-out document, from 1. ConfigError if there are fewer."""
    n_documents = 0
    for n_documents, document in enumerate(validation_documents(corpus, tokenizer, context_length), 1):
        if n_documents == number:
            return document
    what = f"{number} is more than the {n_documents} that are held out"
    raise ConfigError(Option("--fable", "number"), what, "choose another")


def validation_documents(corpus: Corpus, tokenizer: Tokenizer, context_length: int) -> Iterator[Piece]:
    """The held-out documents; of a long one at least as much as fills the context."""
    text, is_full = "", False
    for piece in corpus.pieces("validation"):
        if not is_full:
            text += piece.text
            is_full = piece.ends_document or len(tokenizer.encode(text)) >= context_length
            if is_full:
                yield Piece(text, piece.ends_document)
        if piece.ends_document:
            text, is_full = "", False


def explain(
    model: nn.Module,
    tokenizer: Tokenizer,
    piece: Piece,
    language: Language | None,
    *,
    context_length: int,
    n_candidates: int,
) -> Explanation:
    """Explain a text from the start of a document. language: knows the truth; None if it is not known.

    If a text is longer than the context, only the words that fit are explained, and a note says so.
    DataError for a text that the tokenizer cannot encode.
    """
    text = beginning_that_fits(tokenizer, piece.text, context_length - 1)  # one place is for the end_of_text before it
    ids = tokenizer.encode(text)
    truth = truth_of_text(language, tokenizer, text) if language else None
    ends = (piece.ends_document and text == piece.text) or (truth is not None and truth.is_whole)
    targets = [*ids, tokenizer.end_of_text] if ends else ids

    log_q_TO = log_probabilities(model, [tokenizer.end_of_text, *ids])
    experts_T = [*chosen_experts(model, [tokenizer.end_of_text, *ids])[1:], None]
    truth_T = truth.distributions if truth else [None] * len(log_q_TO)
    texts_O = [*(token_text(tokenizer, id_) for id_ in range(tokenizer.vocab_size)), NO_TOKEN]
    known_truth = document_truth(language, tokenizer, text, targets, truth_T) if language and ends else None
    skills_T = skills_of_tokens(known_truth) if known_truth else [None] * len(targets)
    is_possible = truth is not None and truth.is_possible
    rows = [
        token_row(id_, log_q_O, p, texts_O, skills=skills, experts=experts, text_is_possible=is_possible)
        for id_, log_q_O, p, skills, experts in zip(targets, log_q_TO, truth_T, skills_T, experts_T, strict=False)
    ]
    following, by_character = compare(log_q_TO[-1], truth_T[-1], texts_O, n_candidates), False
    if truth and is_possible and truth_T[-1] is None:
        following, by_character = compare_characters(log_q_TO[-1], truth.next_characters, tokenizer, n_candidates), True
    nats_T, hits_T = np.array([row.model_nats for row in rows]), np.array([row.is_hit for row in rows])
    return Explanation(
        text=text,
        rows=rows,
        next=following,
        next_unit="character" if by_character else "token",
        has_truth=truth is not None,
        skills=skill_table(known_truth, np.arange(len(rows)), nats_T, hits_T, n_documents=1) if known_truth else None,
        notes=notes(language, truth, text, n_tokens=len(ids), is_cut=text != piece.text),
    )


def beginning_that_fits(tokenizer: Tokenizer, text: str, n_tokens: int) -> str:
    """The longest beginning of whole words that fits into `n_tokens`; all of a short text.

    Of a first word that does not fit, as in a script that sets no blanks, the beginning.
    """
    n_left = n_tokens
    for word in WORD.finditer(text):
        n_left -= len(tokenizer.encode(word.group()))
        if n_left < 0:
            return text[: word.start()] or _characters_that_fit(tokenizer, word.group(), n_tokens)
    return text


def _characters_that_fit(tokenizer: Tokenizer, word: str, n_tokens: int) -> str:
    while (n := len(tokenizer.encode(word))) > n_tokens:
        word = word[: len(word) * n_tokens // n]
    return word


@torch.inference_mode()
def log_probabilities(model: nn.Module, ids: Sequence[int]) -> Floats:
    """The model's log q of every outcome at each place (T, O), in float64, as tiny probabilities are summed.

    The last outcome, index UNWRITABLE, is a character that no token can write; the model gives it probability 0.
    """
    with eval_mode(model):
        return log_q_of(model(torch.tensor([ids], device=next(model.parameters()).device))[0])


def log_q_of(logits_TV: Tensor) -> Floats:
    """Logits as log q of every outcome; see `log_probabilities`."""
    log_q_TV = logits_TV.cpu().double().log_softmax(-1)
    return np.pad(log_q_TV.numpy(), ((0, 0), (0, 1)), constant_values=-math.inf)


def chosen_experts(model: nn.Module, ids: Sequence[int]) -> list[list[list[int]] | None]:
    """The experts that each token asks in each layer, the largest share first; None without experts."""
    shares_LTE = trace(model, ids).shares_of_experts() if has_experts(model) else None
    if shares_LTE is None:
        return [None] * len(ids)
    return [
        [shares_E.argsort(descending=True, stable=True)[: (shares_E > 0).sum()].tolist() for shares_E in shares_LE]
        for shares_LE in shares_LTE.transpose(0, 1)
    ]


def token_row(
    id_: int,
    log_q_O: Floats,
    p: Distribution | None,
    texts_O: Sequence[str],
    *,
    skills: dict[str, float] | None,
    experts: list[list[int]] | None = None,
    text_is_possible: bool = False,
    n_candidates: int = CANDIDATES_PER_ROW,
) -> TokenRow:
    """Make the row of a token that was read: the probabilities that the model and the truth, p, gave it."""
    probability = None if p is None else p.get(id_, 0.0)
    if text_is_possible and probability == 0:
        # No token of a possible text is impossible: this one stands in an unfinished last word, which has no truth.
        probability = None
    return TokenRow(
        text=texts_O[id_],
        id=id_,
        model_nats=-float(log_q_O[id_]),
        truth=probability,
        is_hit=int(log_q_O.argmax()) == id_,
        skills=skills,
        forecast=compare(log_q_O, p, texts_O, n_candidates),
        experts=experts,
    )


def compare(log_q_O: Floats, truth: Mapping[int, float] | None, texts_O: Sequence[str], n_candidates: int) -> Forecast:
    """Model and truth at one place. Candidates: the `n_candidates` most likely of each."""
    likeliest = np.argsort(-log_q_O, kind="stable")[:n_candidates].tolist()
    if truth is None:
        return Forecast([Candidate(texts_O[o], math.exp(log_q_O[o]), None) for o in likeliest])
    outcomes = list(dict.fromkeys([*sorted(truth, key=lambda o: -truth[o])[:n_candidates], *likeliest]))
    outcomes.sort(key=lambda o: (truth.get(o, 0.0), log_q_O[o]), reverse=True)
    possible = list(truth)
    p, log_q = np.array(list(truth.values())), log_q_O[possible]
    return Forecast(
        [Candidate(texts_O[o], math.exp(log_q_O[o]), truth.get(o, 0.0)) for o in outcomes],
        kl_nats=max(0.0, float(p @ (np.log(p) - log_q))),
        truth_entropy_nats=max(0.0, -float(p @ np.log(p))),
        forbidden_probability=float(np.exp(np.delete(log_q_O, possible)).sum()),
    )


def compare_characters(
    log_q_O: Floats, truth: Mapping[str, float], tokenizer: Tokenizer, n_candidates: int
) -> Forecast:
    """Model and truth for the next character; the model's probabilities are summed over tokens. "" is the end."""
    q: dict[str, float] = dict.fromkeys(truth, 0.0)
    for id_ in range(tokenizer.vocab_size):
        character = tokenizer.decode([id_])[:1]  # none for a control token
        q[character] = q.get(character, 0.0) + math.exp(log_q_O[id_])
    with np.errstate(divide="ignore"):  # a character that no token begins with has log 0
        log_q = np.log(list(q.values()))
    texts = [character or END for character in q]
    return compare(log_q, dict(enumerate(truth.values())), texts, n_candidates)  # q begins with the keys of truth


def document_truth(
    language: Language, tokenizer: Tokenizer, text: str, ids: Sequence[int], truth_T: Sequence[Distribution | None]
) -> TokenTruth:
    """The true nats and the skills of all tokens of a document."""
    nats_T = [-math.log((p or {})[id_]) for id_, p in zip(ids, truth_T, strict=True)]
    return TokenTruth(tuple(language.skills), np.array(nats_T), skill_characters(language, tokenizer, text))


def skills_of_tokens(known_truth: TokenTruth) -> list[dict[str, float]]:
    """How much of each token belongs to each skill: shares that add up to 1; skills without a share are left out."""
    shares_TS = known_truth.shares(np.arange(len(known_truth.nats))).tolist()
    return [
        {skill: share for skill, share in zip(known_truth.skills, shares_S, strict=True) if share}
        for shares_S in shares_TS
    ]


def notes(language: Language | None, truth: TextTruth | None, text: str, *, n_tokens: int, is_cut: bool) -> list[str]:
    """Notes for the reader where the explanation is incomplete."""
    texts = []
    if language is None or truth is None:
        texts.append(NO_TRUTH)
    elif not truth.is_possible:
        texts.append(first_fault(language, text, truth.possible_length))
    elif truth.coverage == 0:
        texts.append(BY_CHARACTER)
    elif truth.coverage < 1 - 1e-9:
        texts.append(
            f"the text stops inside a word: only {truth.coverage:.1%} of its continuations begin with these tokens "
            "(the others spell the word differently), and the truth about what comes next counts only those"
        )
    if truth and any(UNWRITABLE in (p or ()) for p in truth.distributions):
        texts.append(LACKS_A_CHARACTER)
    if is_cut:
        texts.append(
            f"the text is longer than the context of the model: this is about its first {n_tokens:,} tokens, the whole "
            "words that fit, and what comes next is what comes after those"
        )
    return texts


def first_fault(language: Language, text: str, possible_length: int) -> str:
    """A note on where a text leaves the grammar, and what could have come there."""
    possible, wrong = text[:possible_length], visible(text[possible_length])
    allowed = language.next_character_distribution(possible)
    fault = f"the grammar cannot write this: {after(possible)}"
    if allowed.keys() == {""}:
        return f"{fault} the text is over, but here “{wrong}” follows"
    likeliest = sorted(allowed, key=lambda character: -allowed[character])
    could = ", ".join(f"“{visible(character)}”" if character else "the end" for character in likeliest)
    return f"{fault} it could continue with {could}, but not with “{wrong}”"
