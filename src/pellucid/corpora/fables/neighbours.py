"""How often each word comes after each other one in a fable: expected numbers, exactly, without sampling.

There are too many fables to list, but an expected number is a sum over places, whatever else a fable tells. So the
rules are written out once, with blanks for what tables give: "a sly ▢ named ▢. ▢ was tired of being a ▢." What stands
in a blank never decides which option of a rule comes next, and fables whose last words are the same go on alike, so
there are few to follow. In the end the blanks of each pair of neighbours are filled in all ways.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import count
from typing import NamedTuple

from pellucid.corpora.corpus import WordLength
from pellucid.corpora.fables.grammar import Fork, Grammar, bind, fill
from pellucid.corpora.fables.notation import Bind, Choice, Hole, Option, Part, capitalize

END = ""  # stands for the end of a fable, as if it were a word
FIRST_BLANK = 0xF0000  # blanks are characters of Unicode's private use: no space, and in no fable

Words = tuple[str, ...]


class Draw(NamedTuple):
    """A choice from a table, and the facts that decide which table it is and what it leaves out.

    number: tells it from others of the same choice among the last words.
    """

    choice: Choice
    given: tuple[tuple[Draw, str], ...]
    number: int = 0


Fact = tuple[Draw, str]  # an attribute of what was drawn; WRITTEN: the text itself
WRITTEN = ""


class Blank(NamedTuple):
    """A fact that a fable tells at some place, perhaps with a capital letter."""

    fact: Fact
    capital: bool


class Place(NamedTuple):
    """A fable so far, as far as it matters: what was drawn, the last whole words, and the word that has begun."""

    drawn: frozenset[Draw]
    words: Words
    begun: str


Places = Mapping[Place, float]  # with their probabilities


def expected_words(grammar: Grammar, n: int, word_length: WordLength) -> dict[Words, float]:
    """How often each word, with the n - 1 words before it, stands in a fable: (words before, word) to expected number.

    The first words of a fable have fewer before them. After the last one comes END.
    """
    walk = _Walk(grammar, n, word_length)
    walk.through_all_fables()
    totals: defaultdict[Words, float] = defaultdict(float)
    for parts, number in walk.expected.items():
        for filled, p in walk.fillings(parts):
            before = [word for part in filled[:-1] for word in _split(part, word_length)]
            words = _split(filled[-1], word_length) or [END]
            for i in range(len(words)):  # a blank may hold several words
                totals[tuple([*before, *words[: i + 1]][-n:])] += number * p
    return dict(totals)


class _Walk:
    def __init__(self, grammar: Grammar, n: int, word_length: WordLength) -> None:
        self._grammar, self._n, self._word_length = grammar, n, word_length
        self._blanks: dict[Blank, int] = {}
        self._attributes_of, self._joint_of = cache(self._attributes), cache(self._joint)
        self.expected: defaultdict[Words, float] = defaultdict(float)

    def through_all_fables(self) -> None:
        """Finds the expected number of all words, with blanks in them."""
        for place, p in self._write((self._grammar.start,), {Place(frozenset(), (), ""): 1.0}).items():
            words = (*place.words, place.begun)
            self.expected[words] += p
            self.expected[(*words, END)[-self._n :]] += p

    def _write(self, parts: Iterable[Part], places: Places) -> Places:
        """Where a fable may be after these parts."""
        for part in parts:
            after: defaultdict[Place, float] = defaultdict(float)
            if isinstance(part, Choice) and not self._is_draw(part):
                options = self._grammar.written(part.rule)
                total = sum(option.weight for option in options)
                for option in options:
                    shares = {place: p * option.weight / total for place, p in places.items()}
                    for place, p in self._write(option.parts, shares).items():
                        after[place] += p
            else:
                for place, p in places.items():
                    after[self._go_on(part, place, p)] += p
            places = after
        return places

    def _go_on(self, part: Part, place: Place, p: float) -> Place:
        """After a part that needs no choice between rules. A draw leaves a blank."""
        assert not isinstance(part, Bind), "rules have these only when they are made ready for reading"
        if isinstance(part, str):
            return self._add(part, place, p)
        if isinstance(part, Hole):
            if part.variable in self._grammar.constants:
                return self._add(fill(part, self._grammar.constants), place, p)
            return self._add(self._blank(self._fact(part, place), part.capital), place, p)
        given = tuple(self._fact(hole, place) for hole in (part.selector, part.without) if hole)
        if part.variable:
            draw = Draw(part, given)
            assert draw not in place.drawn, f"{part} is drawn twice, so its blanks would be taken for one"
            place = place._replace(drawn=place.drawn | {draw})
        else:
            last_words = "".join(place.words) + place.begun
            draws = (Draw(part, given, number) for number in count())
            draw = next(draw for draw in draws if self._blank((draw, WRITTEN)) not in last_words)
        return self._add(self._blank((draw, WRITTEN)), place, p)

    def _is_draw(self, choice: Choice) -> bool:
        return bool(choice.variable or choice.selector or choice.without) or self._grammar.rule(choice.rule).is_table

    def _add(self, text: str, place: Place, p: float) -> Place:
        """After some text. Words that are whole now are counted."""
        drawn, words, begun = place
        begun += text
        while (length := self._word_length(begun)) is not None:
            words, begun = (*words, begun[:length]), begun[length:]
            self.expected[words] += p
            words = words[max(0, len(words) - self._n + 1) :]
        return Place(drawn, words, begun)

    def _fact(self, hole: Hole, place: Place) -> Fact:
        """What a hole repeats."""
        (draw,) = (
            draw
            for draw in place.drawn
            if draw.choice.variable == hole.variable and hole.attribute in self._attributes_of(draw)
        )
        return draw, hole.attribute

    def _attributes(self, draw: Draw) -> frozenset[str]:
        """What is known of whatever is drawn: the same of each."""
        option = self._fork(draw, next(iter(self._joint(draw.given)))).rule.options[0]
        return frozenset(option.attributes)

    def _blank(self, fact: Fact, capital: bool = False) -> str:
        return chr(FIRST_BLANK + self._blanks.setdefault(Blank(fact, capital), len(self._blanks)))

    def fillings(self, words: Words) -> Iterator[tuple[Words, float]]:
        """All ways to fill the blanks of these words, each with its probability."""
        characters = {ord(character) - FIRST_BLANK for word in words for character in word}
        blanks = {i: blank for blank, i in self._blanks.items() if i in characters}
        facts = tuple(dict.fromkeys(blank.fact for blank in blanks.values()))
        sources = [(FIRST_BLANK + i, facts.index(fact), capital) for i, (fact, capital) in blanks.items()]
        for texts, p in self._joint_of(facts).items():
            filled = {i: capitalize(texts[place]) if capital else texts[place] for i, place, capital in sources}
            yield tuple(word.translate(filled) for word in words), p

    def _joint(self, facts: tuple[Fact, ...]) -> dict[Words, float]:
        """The probability of all that these facts may be together."""
        known: list[Fact] = []
        ways: Mapping[Words, float] = {(): 1.0}
        draws = list(_in_order(draw for draw, _ in facts))
        for i, draw in enumerate(draws):
            wanted = dict.fromkeys([*facts, *(fact for later in draws[i + 1 :] for fact in later.given)])
            given = [known.index(fact) for fact in draw.given]
            kept = [place for place, fact in enumerate(known) if fact in wanted]
            learned = [name for drawn, name in wanted if drawn == draw]
            after: defaultdict[Words, float] = defaultdict(float)
            for texts, p in ways.items():
                fork = self._fork(draw, [texts[place] for place in given])
                for index in fork.allowed():
                    option = fork.rule.options[index]
                    more = (_text(option) if name == WRITTEN else option.attributes[name] for name in learned)
                    texts_after = tuple(texts[place] for place in kept) + tuple(more)
                    after[texts_after] += p * fork.probability(index)
            known, ways = [known[place] for place in kept] + [(draw, name) for name in learned], after
        return {tuple(texts[known.index(fact)] for fact in facts): p for texts, p in ways.items()}

    def _fork(self, draw: Draw, given: Sequence[str]) -> Fork:
        """The choice, where these facts are given."""
        state, holes = self._grammar.constants, (draw.choice.selector, draw.choice.without)
        for hole, text in zip((hole for hole in holes if hole), given, strict=True):
            state = bind(state, hole.variable, {hole.attribute: text})
        return Fork(self._grammar, draw.choice, None, state)


def _in_order(draws: Iterable[Draw]) -> dict[Draw, None]:
    """The draws and those that they depend on, which come before them."""
    found: dict[Draw, None] = {}
    for draw in draws:
        found |= {**_in_order(earlier for earlier, _ in draw.given), draw: None}
    return found


def _text(option: Option) -> str:
    return "".join(map(str, option.parts))


def _split(text: str, word_length: WordLength) -> list[str]:
    """The words of a text, the last of them as if it were whole."""
    words = []
    while text:
        length = word_length(text) or len(text)
        words.append(text[:length])
        text = text[length:]
    return words
