"""The exact truth about a text, or about the answer in a conversation, for the page.

Shapes: T tokens.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence

from pellucid.corpora.corpus import KnownConversations
from pellucid.data.both_sides import distributions_from_both_sides
from pellucid.data.truth import Distribution, skill_characters
from pellucid.errors import DataError
from pellucid.inspection.explain_truth import TextTruth, truth_of_text
from pellucid.languages.language import Language
from pellucid.tokenizer import Tokenizer
from pellucid.tokenizer.chat import prompt_ids
from pellucid.tokenizer.tokenizer import ASSISTANT, CHAT_TOKENS, END_OF_TURN, USER
from pellucid.web.descriptions import Json

ANY_MARK = "|".join(map(re.escape, CHAT_TOKENS))
UNMARKED = f"((?:(?!{ANY_MARK}).)*)"
ONE_ANSWER = re.compile(
    f"{re.escape(USER)}{UNMARKED}{re.escape(END_OF_TURN + ASSISTANT)}{UNMARKED}({re.escape(END_OF_TURN)})?", re.DOTALL
)


def truth_of_document(language: Language, tokenizer: Tokenizer, text: str) -> Json:
    """The distribution of the next token at each position, the floor of each token, and the grammar's verdict."""
    truth = truth_of_text(language, tokenizer, text)
    ids = tokenizer.encode(text)
    return {
        **_at_each(truth.distributions, [tokenizer.end_of_text, *ids]),
        "possible_length": truth.possible_length,
        "is_possible": truth.is_possible,
        "is_whole": truth.is_whole,
        "next_characters": dict(truth.next_characters),
        "skills": _skills(language, tokenizer, text, truth),
    }


def truth_of_gaps_in(language: Language, tokenizer: Tokenizer, text: str) -> Json:
    """`truth_of_document` for a model that fills gaps: p(token | all others in a document) at each place."""
    ids = tokenizer.encode(text)
    known: Iterable[Distribution | None] = distributions_from_both_sides(language, tokenizer, text)
    given = _at_each([*(list(known) or [None] * len(ids)), None], [tokenizer.end_of_text, *ids])
    moved = {name: [None, *given[name][:-1]] for name in ("positions", "entropy")}
    return {**truth_of_document(language, tokenizer, text), **given, **moved}


def truth_of_answer(corpus: KnownConversations, tokenizer: Tokenizer, text: str) -> Json:
    """The truths of the answer in a text with marks, or of the beginning of an answer to a question without any.

    It is not known for questions that the corpus cannot contain, nor for more than a question and its answer.
    """
    is_marked = re.search(ANY_MARK, text) is not None
    match = ONE_ANSWER.fullmatch(text if is_marked else f"{USER}{text}{END_OF_TURN}{ASSISTANT}")
    if match is None:
        return {"known": False, "why": "The truth is known only of one question and its answer."}
    question, answer, end = match.groups()
    try:
        known = corpus.answers_to(question)
    except DataError as error:
        return {"known": False, "why": f"The truth is not known here: {error.what}; {error.fix}."}
    truth = truth_of_text(known, tokenizer, answer)
    before, mark = prompt_ids(tokenizer, [("user", question)]), tokenizer.control_id(END_OF_TURN)
    ends = [mark] if end else []
    ids = [*before, *tokenizer.encode(answer), *ends]
    distributions = [_ended_by(p, tokenizer.end_of_text, mark) for p in truth.distributions]
    is_possible = truth.is_possible and (not end or "" in truth.next_characters)
    n_possible = match.start(2) + truth.possible_length if is_marked else len(text)
    skills = _skills(known, tokenizer, answer, truth)
    return {
        **_at_each([*[None] * (len(before) - 1), *distributions, *[None] * len(ends)], ids),
        "is_answer": True,
        "possible_length": n_possible if is_possible or not truth.is_possible else match.start(3),
        "is_possible": is_possible,
        "is_whole": truth.is_whole,
        "next_characters": dict(truth.next_characters),
        "skills": skills and [*([] for _ in before[1:]), *skills, *([] for _ in ends)],
    }


def _at_each(distributions: Sequence[Distribution | None], ids: Sequence[int]) -> Json:
    """The truth at each of T positions; the floor of each token but the first."""
    return {
        "known": True,
        "ids": list(ids),
        "positions": [None if p is None else {"ids": list(p), "p": list(p.values())} for p in distributions],
        "floor": [_surprise(p, id_) for p, id_ in zip(distributions, ids[1:], strict=False)],
        "entropy": [None if p is None else _entropy(p) for p in distributions],
    }


def _skills(language: Language, tokenizer: Tokenizer, text: str, truth: TextTruth) -> list[list[str]] | None:
    """The skills that each token of a whole document needs; None for another text."""
    if not truth.is_whole:
        return None
    counts_TS = skill_characters(language, tokenizer, text)[: len(truth.distributions) - 1]
    return [[name for name, n in zip(language.skills, counts_S, strict=True) if n] for counts_S in counts_TS]


def _ended_by(p: Distribution | None, end_of_text: int, mark: int) -> Distribution | None:
    """The distribution, with the mark that ends an answer in place of that which ends a document."""
    return None if p is None else {mark if id_ == end_of_text else id_: each for id_, each in p.items()}


def _surprise(p: Distribution | None, id_: int) -> float | None:
    """−log p of the token; None where it is unknown or impossible."""
    return -math.log(p[id_]) if p is not None and p.get(id_) else None


def _entropy(p: Mapping[int, float]) -> float:
    return max(0.0, -math.fsum(probability * math.log(probability) for probability in p.values() if probability))
