"""How often each n-gram of tokens stands in a fable, exactly, without sampling, and what an n-gram model can reach.

There are too many fables to list, but an expected number is a sum over places, whatever else a fable tells. So the
rules are written out once, with blanks for what tables give: "a sly ▢ named ▢. ▢ was tired of being a ▢." What stands
in a blank never decides which option of a rule comes next, and fables whose last words are the same go on alike, so
there are few to follow. In the end the blanks of each few words are filled in all ways, and the words are spelled.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import count
from typing import NamedTuple

from pellucid.data.truth import first_word_length
from pellucid.languages.fables import Fables
from pellucid.languages.grammar.grammar import Fork, Grammar, State, bind, fill
from pellucid.languages.grammar.notation import Choice, Hole, Part, capitalize
from pellucid.tokenizer import Tokenizer

END = ""  # stands for the end of a fable, as if it were a word
FIRST_BLANK = 0xF0000  # blanks are characters of Unicode's private use: no space, and in no fable
WRITTEN = ""  # as an attribute of what was drawn: the text itself

Words = tuple[str, ...]
Ngrams = Mapping[tuple[int, ...], float]


class Draw(NamedTuple):
    """A choice from a table, and the earlier draws that decide which table it is and what it leaves out.

    number: distinguishes draws of the same choice among the last words.
    """

    choice: Choice
    given: tuple[Draw, ...]
    number: int = 0


class Blank(NamedTuple):
    """An attribute of what was drawn, where a fable names it, perhaps with a capital letter."""

    draw: Draw
    attribute: str
    capital: bool = False


class Place(NamedTuple):
    """A fable so far, as far as it matters: what was drawn, the last whole words, and the word that has begun."""

    drawn: frozenset[Draw]
    words: Words
    begun: str


Places = Mapping[Place, float]  # with their probabilities


def expected_ngrams(fables: Fables, tokenizer: Tokenizer, n: int) -> Ngrams:
    """How often each token, with the n - 1 tokens before it, stands in a document: expected numbers, exactly.

    The end_of_text that ends a document is one of the tokens; before its first token stands only another end_of_text.
    """
    encode = cache(tokenizer.encode)
    totals: defaultdict[tuple[int, ...], float] = defaultdict(float)
    for (*words_before, word), number in expected_words(fables.grammar, n).items():
        begins = [tokenizer.end_of_text] if len(words_before) < n - 1 else []
        before = begins + [id_ for earlier in words_before for id_ in encode(earlier)]
        ids = [tokenizer.end_of_text] if word == END else encode(word)
        for i in range(len(ids)):
            totals[tuple([*before, *ids[: i + 1]][-n:])] += number
    return dict(totals)


def floor_of(ngrams: Ngrams) -> float:
    """H(token | the tokens before it in the n-gram), in nats per token: no model that sees no more can do better."""
    before: defaultdict[tuple[int, ...], float] = defaultdict(float)
    for ngram, number in ngrams.items():
        before[ngram[:-1]] += number
    nats = (-number * math.log(number / before[ngram[:-1]]) for ngram, number in ngrams.items())
    return math.fsum(nats) / math.fsum(ngrams.values())


def expected_words(grammar: Grammar, n: int) -> dict[Words, float]:
    """How often each word, with the n - 1 words before it, stands in a fable: (words before, word) to expected number.

    The first words of a fable have fewer before them. After the last one comes END.
    """
    walk = Walk(grammar, n)
    walk.through_all_fables()
    totals: defaultdict[Words, float] = defaultdict(float)
    for parts, number in walk.expected.items():
        for filled, p in walk.fillings(parts):
            before = [word for part in filled[:-1] for word in split(part)]
            words = split(filled[-1]) or [END]
            for i in range(len(words)):  # a blank may hold several words
                totals[tuple([*before, *words[: i + 1]][-n:])] += number * p
    return dict(totals)


class Walk:
    """Writes the rules out with blanks, and counts the last n words wherever a word ends."""

    def __init__(self, grammar: Grammar, n: int) -> None:
        self.grammar, self.n = grammar, n
        self.blanks: dict[Blank, str] = {}
        self.attributes, self.joint = cache(self.attributes), cache(self.joint)
        self.expected: defaultdict[Words, float] = defaultdict(float)

    def through_all_fables(self) -> None:
        """Finds the expected number of all words, with blanks in them."""
        for place, p in self.write((self.grammar.start,), {Place(frozenset(), (), ""): 1.0}).items():
            words = (*place.words, place.begun)
            self.expected[words] += p
            self.expected[(*words, END)[-self.n :]] += p

    def write(self, parts: Iterable[Part], places: Places) -> Places:
        """Where a fable may be after these parts."""
        for part in parts:
            after: defaultdict[Place, float] = defaultdict(float)
            if isinstance(part, Choice) and not self.is_draw(part):
                options = self.grammar.written(part.rule)
                total = sum(option.weight for option in options)
                for option in options:
                    shares = {place: p * option.weight / total for place, p in places.items()}
                    for place, p in self.write(option.parts, shares).items():
                        after[place] += p
            else:
                for place, p in places.items():
                    after[self.go_on(part, place, p)] += p
            places = after
        return places

    def is_draw(self, choice: Choice) -> bool:
        return bool(choice.variable or choice.selector or choice.without) or self.grammar.rule(choice.rule).is_table

    def go_on(self, part: Part, place: Place, p: float) -> Place:
        """After a part that needs no choice between rules. A draw leaves a blank."""
        if isinstance(part, str):
            return self.add(part, place, p)
        if isinstance(part, Hole):
            if part.variable in self.grammar.constants:
                return self.add(fill(part, self.grammar.constants), place, p)
            return self.add(self.blank(self.draw_of(part, place), part.attribute, part.capital), place, p)
        given = tuple(self.draw_of(hole, place) for hole in (part.selector, part.without) if hole)
        if part.variable:
            draw = Draw(part, given)
            assert draw not in place.drawn, f"{part} is drawn twice, so its blanks would be taken for one"
            place = place._replace(drawn=place.drawn | {draw})
        else:
            last_words = "".join(place.words) + place.begun
            draws = (Draw(part, given, number) for number in count())
            draw = next(draw for draw in draws if self.blank(draw, WRITTEN) not in last_words)
        return self.add(self.blank(draw, WRITTEN), place, p)

    def add(self, text: str, place: Place, p: float) -> Place:
        """After some text. Words that are whole now are counted."""
        drawn, words, begun = place
        begun += text
        while (length := first_word_length(begun)) is not None:
            words, begun = (*words, begun[:length]), begun[length:]
            self.expected[words] += p
            words = words[max(0, len(words) - self.n + 1) :]
        return Place(drawn, words, begun)

    def draw_of(self, hole: Hole, place: Place) -> Draw:
        """The draw that a hole repeats."""
        (repeated,) = (
            draw
            for draw in place.drawn
            if draw.choice.variable == hole.variable and hole.attribute in self.attributes(draw)
        )
        return repeated

    def attributes(self, draw: Draw) -> frozenset[str]:
        """The names of the attributes, which all options of a draw have in common."""
        state, _, _ = next(self.ways(in_order([draw])))
        return frozenset(state[draw.choice.variable])

    def blank(self, *of: object) -> str:
        return self.blanks.setdefault(Blank(*of), chr(FIRST_BLANK + len(self.blanks)))

    def fillings(self, words: Words) -> Iterator[tuple[Words, float]]:
        """All ways to fill the blanks of these words, each with its probability."""
        characters = set("".join(words))
        blanks = {ord(character): blank for blank, character in self.blanks.items() if character in characters}
        for texts, p in self.joint(tuple(blanks.values())).items():
            filled = dict(zip(blanks, texts, strict=True))
            yield tuple(word.translate(filled) for word in words), p

    def joint(self, blanks: tuple[Blank, ...]) -> dict[Words, float]:
        """The probability of all that these blanks may hold together."""
        totals: defaultdict[Words, float] = defaultdict(float)
        for state, written, p in self.ways(in_order(blank.draw for blank in blanks)):
            texts = []
            for draw, attribute, capital in blanks:
                text = written[draw] if attribute == WRITTEN else state[draw.choice.variable][attribute]
                texts.append(capitalize(text) if capital else text)
            totals[tuple(texts)] += p
        return dict(totals)

    def ways(self, draws: Sequence[Draw]) -> Iterator[tuple[State, Mapping[Draw, str], float]]:
        """All that these may draw, one after the other: the state then, the texts, and the probability."""
        if not draws:
            yield self.grammar.constants, {}, 1.0
            return
        *earlier, draw = draws
        for state, written, p in self.ways(earlier):
            fork = Fork(self.grammar, draw.choice, None, state)
            for i in fork.allowed():
                option = fork.rule.options[i]
                text = "".join(map(str, option.parts))
                after = bind(state, draw.choice.variable, option.attributes)
                yield after, {**written, draw: text}, p * fork.probability(i)


def in_order(draws: Iterable[Draw]) -> list[Draw]:
    """The draws, each after those that it depends on."""
    return list(dict.fromkeys(each for draw in draws for each in (*in_order(draw.given), draw)))


def split(text: str) -> list[str]:
    """The words of a text, the last of them as if it were whole."""
    words = []
    while text:
        length = first_word_length(text) or len(text)
        words.append(text[:length])
        text = text[length:]
    return words
