"""Languages of symbols: a document is a row of symbols, and at each place the next one's distribution is known.

A language says in which state a document begins, p(next symbol | state), and the state after each symbol. The rest
follows from that: p(document), samples, and the exact distribution of the next character and of the next word.

In a text there is a blank before each symbol: " a b b a". So every symbol is a word, and a tokenizer that has seen
enough of them has one token for each.
"""

import math
import random
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from string import ascii_letters
from typing import Generic, NamedTuple, TypeVar

from pellucid.errors import DataError
from pellucid.languages.language import SPELLING, Decided, Language, NextWord, WordLength

State = TypeVar("State")
Value = TypeVar("Value")
END = ""  # in place of a symbol: the document is over
NAMES = ascii_letters  # symbols that stand for states, keys, things, ...
MOST_STATES = 20_000  # at one place of a text, where its entropy is computed


class Question(NamedTuple):
    """A question of a document: the places at which its thought begins, and its answer, and ends; and its kind."""

    begin: int
    answer: int
    end: int
    kind: str


class SymbolLanguage(Language, Generic[State]):
    """A distribution over rows of symbols.

    skills: those that predicting a symbol may take, and SPELLING for the blanks between them.
    """

    @property
    def entropy_nats(self) -> float | None:
        """The exact entropy of a document; None where a reader may be in too many states to go through them all.

        Ways to the same state have the same future: so each place has a distribution of states, and each state p(next).
        """
        total, now = 0.0, {self.begin(): 1.0}
        while now and len(now) <= MOST_STATES:
            later: dict[State, float] = defaultdict(float)
            for state, p in now.items():
                following = self.following(state)
                total += p * entropy(following)
                for symbol, share in following.items():
                    if symbol != END:
                        later[self.after(state, symbol)] += p * share
            now = later
        return None if now else total

    @abstractmethod
    def begin(self) -> State:
        """The state before the first symbol."""

    @abstractmethod
    def following(self, state: State) -> Mapping[str, float]:
        """p(next symbol | what was written so far), without zeros; END for the end of the document."""

    @abstractmethod
    def after(self, state: State, symbol: str) -> State:
        """The state after a symbol that may come next."""

    @abstractmethod
    def skill(self, state: State, symbol: str) -> str:
        """The skill that it takes to predict this symbol here."""

    def sources(self, symbols: Sequence[str], place: int) -> Sequence[int]:
        """The places of the few earlier symbols that decide this one; () where chance does, or all that was written."""
        return ()

    def environment(self, symbols: Sequence[str]) -> str:
        """The symbol that a tool writes after these, whoever wrote them; "" where it has nothing to say."""
        return ""

    def questions(self, symbols: Sequence[str]) -> Sequence[Question]:
        """The questions of a document that have one right answer; their kinds are names of skills."""
        return ()

    def write(self, rng: random.Random) -> str:
        """Draw a document."""
        symbols, state = list[str](), self.begin()
        while (symbol := draw(self.following(state).items(), rng)) != END:
            symbols.append(symbol)
            state = self.after(state, symbol)
        return text_of(symbols)

    def steps(self, text: str) -> Iterator[tuple[State, str]]:
        """Each symbol of a document and then END, with the state before it. DataError if the text is none."""
        state, symbols = self.begin(), symbols_of(text)
        for place, symbol in enumerate([*symbols, END]):
            if symbol not in self.following(state) or (symbol == END and place < len(symbols)):
                raise DataError("text", f"{text[:40]!r} is not in the language", "give a text that it can write")
            yield state, symbol
            if symbol != END:
                state = self.after(state, symbol)

    def log_probability(self, text: str) -> float:
        """ln p(document) in nats; minus infinity for a text that the language cannot write."""
        try:
            return math.fsum(math.log(self.following(state)[symbol]) for state, symbol in self.steps(text))
        except DataError:
            return -math.inf

    def words_of(self, text: str, word_length: WordLength) -> Iterator[tuple[str, Mapping[NextWord, float]]]:
        """Each word of a document, a blank and a symbol, and p(word | the words before it). DataError: impossible."""
        return ((f" {symbol}", self._words(state)) for state, symbol in self.steps(text) if symbol != END)

    def words_on(self, prefix: str, word_length: WordLength) -> Mapping[NextWord, float]:
        """p(next word | these complete words); {} if no document begins like this, or none goes on."""
        state = self._state_after(symbols_of(prefix)) if prefix[:1] in ("", " ") else None
        return {} if state is None else self._words(state)

    def next_character_distribution(self, prefix: str) -> Mapping[str, float]:
        """p(next character | prefix); "" is the end of the document; {} if no document begins like this."""
        before, *symbols = prefix.split(" ")
        *complete, begun = symbols or [""]
        state = None if before else self._state_after(complete)
        if state is None:
            return {}
        if not symbols:
            return self._end_or_blank(state)
        masses: dict[str, float] = {}
        for symbol, p in self.following(state).items():
            if symbol != END and symbol.startswith(begun):
                rest = symbol[len(begun) :]
                next_characters = {rest[0]: 1.0} if rest else self._end_or_blank(self.after(state, symbol))
                for character, share in next_characters.items():
                    masses[character] = masses.get(character, 0.0) + p * share
        total = math.fsum(masses.values())
        return {character: mass / total for character, mass in masses.items()}

    def skills_of(self, text: str) -> list[int]:
        """The index in `skills` of each character of a document. DataError if the text is none."""
        skills = [
            skill
            for state, symbol in self.steps(text)
            if symbol != END
            for skill in (SPELLING, *[self.skill(state, symbol)] * len(symbol))
        ]
        return [self.skills.index(skill) for skill in skills]

    def decided_pieces(self, text: str) -> list[Decided]:
        """The symbols of a document that a few earlier ones decide. DataError if the text is none."""
        symbols = [symbol for _, symbol in self.steps(text) if symbol != END]
        starts = accumulate((len(symbol) + 1 for symbol in symbols), initial=1)
        spans = [(start, end - 1) for start, end in pairwise(starts)]
        pieces = (Decided(*span, [spans[i] for i in self.sources(symbols, n)]) for n, span in enumerate(spans))
        return [piece for piece in pieces if piece.by]

    def likeliest(self, beginning: str) -> str:
        """The document with this beginning that goes on with the likeliest symbols. DataError if none does."""
        *symbols, begun = symbols_of(beginning) or [END]
        state = self._state_after(symbols)
        following = {} if state is None else self.following(state)
        following = {symbol: p for symbol, p in following.items() if symbol != END and symbol.startswith(begun)}
        if state is None or not following:
            what = f"no text of the language begins with {beginning[:40]!r}"
            raise DataError("text", what, "give a text that it can write")
        while (symbol := max(following, key=following.__getitem__)) != END:
            symbols.append(symbol)
            state = self.after(state, symbol)
            following = self.following(state)
        return text_of(symbols)

    def _state_after(self, symbols: Sequence[str]) -> State | None:
        state = self.begin()
        for symbol in symbols:
            if symbol == END or symbol not in self.following(state):
                return None
            state = self.after(state, symbol)
        return state

    def _words(self, state: State) -> dict[NextWord, float]:
        goes_on = {symbol: p for symbol, p in self.following(state).items() if symbol != END}
        total = math.fsum(goes_on.values())
        return {
            NextWord(f" {symbol}", ends_document=character == END): p / total * share
            for symbol, p in goes_on.items()
            for character, share in self._end_or_blank(self.after(state, symbol)).items()
        }

    def _end_or_blank(self, state: State) -> dict[str, float]:
        """The distribution of the character after a complete symbol, or before the first one."""
        ends = self.following(state).get(END, 0.0)
        return {character: p for character, p in ((END, ends), (" ", 1 - ends)) if p > 0}


def text_of(symbols: Sequence[str]) -> str:
    """The text of these symbols."""
    return "".join(f" {symbol}" for symbol in symbols)


def symbols_of(text: str) -> list[str]:
    """The symbols of a text. A text that no symbols have gives at least one that no language has."""
    return text[1:].split(" ") if text[:1] == " " else [f" {text}"] if text else []


def draw(probabilities: Iterable[tuple[Value, float]], rng: random.Random) -> Value:
    """One of these values, with these probabilities, which sum to 1."""
    left = rng.random()
    for value, p in probabilities:
        left -= p
        if left < 0:
            return value
    return value  # rounding errors may leave the last one


def uniform(symbols: Sequence[str]) -> dict[str, float]:
    """Equal probabilities."""
    return dict.fromkeys(symbols, 1 / len(symbols))


def entropy(probabilities: Mapping[str, float]) -> float:
    """−Σ p ln p, in nats."""
    return -math.fsum(p * math.log(p) for p in probabilities.values() if p)
