"""Attribution of skills to heads: where a head looks when a skill is needed, and what the skill loses without it.

A language may know which earlier words decide what comes: in Fables a name that is repeated, a fact, a pronoun or a
number (see `languages.grammar.deciding`), in `lookup` the value of a key. So two things are measured for each head and
skill; only both together show that the head does the work:

    looks   the share of its attention on tokens of the deciding words, where it predicts a token that they decide;
            and for comparison, that share if attention were spread evenly over all tokens so far
    costs   the rise of the skill's loss when the head is knocked out (see `knock_out`)

Shapes: L layers, H heads, K skills that earlier words can decide, T positions as queries, S as keys, F documents.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

import numpy as np
from numpy.typing import NDArray

from pellucid.evaluation.estimate import Estimate, ratio
from pellucid.inspection.head_scores import LEAST_NAMED_SCORE, HeadScores, scores_table
from pellucid.inspection.knock_out import Costs, HeldOut, knock_out_table
from pellucid.inspection.probe import ends_of_tokens
from pellucid.inspection.trace import trace
from pellucid.languages.grammar.skills import CHOICE
from pellucid.languages.language import SPELLING, Language
from pellucid.model.decoder import Decoder
from pellucid.tables import table
from pellucid.tokenizer import Tokenizer


@dataclass(frozen=True)
class HeadWork:
    """A head's share of attention on the words that decide each skill, and the cost of knocking it out."""

    layer: int
    head: int
    looks: dict[str, Estimate]
    costs: Costs

    @property
    def name(self) -> str:
        return f"{self.layer}.{self.head}"

    def to_json(self) -> dict[str, object]:
        looks = {skill: share.to_json() for skill, share in self.looks.items()}
        return {"layer": self.layer, "head": self.head, "looks": looks, "costs": self.costs.to_json()["nats_per_fable"]}


@dataclass(frozen=True)
class Attribution:
    """The work of all heads, layer by layer.

    evenly: the share on the deciding words if attention were even, for each skill that words decide.
    """

    n_documents: int
    evenly: dict[str, float]
    heads: list[HeadWork]

    def done_by(self, skill: str) -> HeadWork | None:
        """The head whose knock-out costs the skill most; None unless that is significant (95 %), and the head has at
        least 40 % of its attention on the deciding words."""
        best = max(self.heads, key=lambda head: head.costs.by_skill[skill].mean)
        cost = best.costs.by_skill[skill]
        does = cost.mean > cost.half_width and best.looks[skill].mean >= LEAST_NAMED_SCORE
        return best if does else None

    def to_json(self) -> dict[str, object]:
        done_by = {skill: head and [head.layer, head.head] for skill in self.evenly for head in [self.done_by(skill)]}
        heads = [head.to_json() for head in self.heads]
        return {"fables": self.n_documents, "evenly": self.evenly, "done_by": done_by, "heads": heads}

    def table(self) -> str:
        """The results as a table to read: in full for the skills that words decide, or else the costs of all skills."""
        of_each = "how many nats per document each skill loses without"
        title = f"what heads do, on {self.n_documents} held-out documents (± 95 %): " + (
            f"how much of their attention, in %, is on the words that decide the next token, and {of_each} them"
            if self.evenly
            else f"{of_each} them; of none is it known that a few words decide it"
        )
        skills = list(self.evenly) or list(self.heads[0].costs.by_skill)
        columns = [f"{skill}{what}" for skill in skills for what in ((": looks", ": loses") if self.evenly else ("",))]
        rows = [
            (head.name, *(cell for skill in skills for cell in _cells(head, skill)), str(head.costs.all))
            for head in self.heads
        ]
        if self.evenly:
            rows.insert(0, ("evenly", *(cell for share in self.evenly.values() for cell in (f"{share:.1%}", "")), ""))
        doers = {head.name for skill in self.evenly for head in [self.done_by(skill)] if head}
        styles = {i: "bold" for i, (name, *_) in enumerate(rows) if name in doers}
        return table(("head", *columns, "all"), rows, styles, above=[title], below=[*map(self._sentence, self.evenly)])

    def _sentence(self, skill: str) -> str:
        head = self.done_by(skill)
        if head is None:
            looks = max(self.heads, key=lambda head: head.looks[skill].mean)
            missed = max(self.heads, key=lambda head: head.costs.by_skill[skill].mean)
            return f"{skill}: no single head does it; {looks.name} looks there most, and {missed.name} is missed most"
        of_skill, of_all = head.costs.by_skill[skill].mean, head.costs.all.mean
        without = f"{skill} loses {of_skill:.2f} nats per document and all skills together {of_all:.2f}"
        return f"{skill}: head {head.name}; without it, {without}"


def _cells(head: HeadWork, skill: str) -> list[str]:
    """Its attention to the words that decide, if that is known, and what the skill loses without it."""
    look = head.looks.get(skill)
    looks = [] if look is None else [f"{100 * look.mean:.1f} ±{100 * look.half_width:.1f}"]
    return [*looks, str(head.costs.by_skill[skill])]


@dataclass(frozen=True)
class HeadTable:
    """Scores and attribution of all heads. attribution: None unless the truth about the text is known."""

    scores: list[HeadScores]
    attribution: Attribution | None

    def to_json(self) -> dict[str, object]:
        scores = [head.to_json() for head in self.scores]
        return {"scores": scores, "attribution": self.attribution and self.attribution.to_json()}

    def table(self) -> str:
        parts = [scores_table(self.scores)]
        return "\n\n".join([*parts, self.attribution.table()] if self.attribution else parts)


def attribute(model: Decoder, tokenizer: Tokenizer, language: Language, documents: Sequence[HeldOut]) -> Attribution:
    """Measure all heads on these documents. ConfigError for attention weights that do not sum to 1."""
    skills = skills_decided(language)
    columns = [language.skills.index(skill) for skill in skills]
    looks, evenly, weights = [], [], []
    for document in documents:
        decides_KTS = deciding_tokens(language, tokenizer, document)
        shares_KT = document.shares[:, columns].T * decides_KTS.any(axis=2)
        wanted_KTS = shares_KT[:, :, None] * decides_KTS
        attention_LHTS = trace(model, document.ids).shares("heads").double().numpy()
        looks.append(np.einsum("lhts,kts->lhk", attention_LHTS, wanted_KTS))
        evenly.append((wanted_KTS.sum(axis=2) / np.arange(1, len(document.ids) + 1)).sum(axis=1))
        weights.append(shares_KT.sum(axis=1))
    looks_KLHF, weights_KF = np.stack(looks).transpose(3, 1, 2, 0), np.stack(weights, axis=1)
    index_of_skill = {skill: k for k, skill in enumerate(skills) if weights_KF[k].any()}

    places = [("head", layer, head) for layer, head in np.ndindex(looks_KLHF.shape[1:3])]
    rows = knock_out_table(model, documents, language.skills, [[place] for place in places]).rows
    heads = []
    for (_, layer, head), costs in zip(places, rows, strict=True):
        shares = {skill: ratio(looks_KLHF[k, layer, head], weights_KF[k]) for skill, k in index_of_skill.items()}
        heads.append(HeadWork(layer, head, shares, costs))
    evenly_K = np.sum(evenly, axis=0) / np.maximum(weights_KF.sum(axis=1), 1e-9)
    return Attribution(len(documents), {skill: float(evenly_K[k]) for skill, k in index_of_skill.items()}, heads)


def deciding_tokens(language: Language, tokenizer: Tokenizer, document: HeldOut) -> NDArray[np.bool_]:
    """A mask (K, T, S): is key s a token of the words that decide the target of query t, by skill k?

    K: see `skills_decided`. The first key is the end_of_text. The rows of targets that no word decides are all False.
    """
    return _deciding_tokens(language, tokenizer, document.text, len(document.ids))


def what_decides(language: Language, tokenizer: Tokenizer, text: str) -> list[list[int]]:
    """For each position (the first is the end_of_text), the tokens whose words decide the next one; [] if none do.

    The text is the beginning of a document, continued with its likeliest ending. Raises DataError for other texts.
    """
    document = language.likeliest(text)
    ids = tokenizer.encode(text)
    pairs = zip(ids, tokenizer.encode(document), strict=False)
    n_same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    decides_KTS = _deciding_tokens(language, tokenizer, document, n_same + 1)
    unknown: list[list[int]] = [[]] * (len(ids) - n_same)  # inside a word that the document encodes as other tokens
    return [np.flatnonzero(decides_KTS[:, t].any(axis=0)).tolist() for t in range(n_same + 1)] + unknown


def skills_decided(language: Language) -> list[str]:
    """The skills that words may decide: not chance, and not what everybody can spell."""
    return [skill for skill in language.skills if skill not in (CHOICE, SPELLING)]


def _deciding_tokens(language: Language, tokenizer: Tokenizer, text: str, T: int) -> NDArray[np.bool_]:
    decided = skills_decided(language)
    decides_KTS = np.zeros((len(decided), T, T), dtype=bool)
    ends = ends_of_tokens(tokenizer, text)
    token_of = np.repeat(np.arange(len(ends)), np.diff(ends, prepend=0))  # of each character
    skills = [language.skills[skill] for skill in language.skills_of(text)]
    for piece in language.decided_pieces(text):
        keys = np.concatenate([token_of[start:end] for start, end in piece.by]) + 1
        for place in range(piece.start, piece.end):
            t = token_of[place]
            if skills[place] in decided and t < T:
                decides_KTS[decided.index(skills[place]), t, keys[keys <= t]] = True
    return decides_KTS
