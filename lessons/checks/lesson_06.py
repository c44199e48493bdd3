"""Checks of lesson 6. Right answers come from `pellucid.plain`, or are written out."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from pellucid import plain
from pellucid.course.checks import Wrong, draws, expect
from pellucid.languages.fables import Fables
from pellucid.tokenizer.pieces import visible

Pair = tuple[int, int]
A, B, C = (plain.BYTES.index(ord(letter)) for letter in "abc")


def _ids(answer: Any, what: str) -> list[int]:
    """A list of ids, however the student holds it."""
    if answer is None:
        raise Wrong(f"{what}: your function returns None; is a `return` missing?")
    try:
        return [int(i) for i in answer]
    except (TypeError, ValueError):
        if isinstance(answer, (list, tuple)) and any(isinstance(each, (list, tuple)) for each in answer):
            raise Wrong(f"{what}: one list of ids is expected, but your list holds lists, one for each word") from None
        raise Wrong(f"{what}: a list of ids is expected, but you return {type(answer).__name__}") from None


def _spelling(i: int, merges: dict[Pair, int]) -> str:
    return visible(plain.decode([i], merges)) if i < 256 + len(merges) else f"token {i}"


def _in_words(ids: Iterable[int], merges: dict[Pair, int]) -> str:
    return " · ".join(_spelling(i, merges) for i in ids) or "nothing"


# ---- Learning ----


def count_pairs(lesson: ModuleType) -> None:
    _count_few(lesson)
    if _counted(lesson, {}):
        raise Wrong("without words there are no pairs")
    random = draws("count_pairs")
    for most in (9, 2000):
        ids = random.integers(0, most, size=6)
        words = {tuple(int(i) for i in random.choice(ids, n)): int(random.integers(1, 400)) for n in (1, 2, 2, 3, 5, 9)}
        right: Counter[Pair] = Counter()
        for word, n in words.items():
            for i in range(1, len(word)):
                right[word[i - 1], word[i]] += n
        found = _counted(lesson, words)
        for pair in sorted(set(found) | set(right)):
            if found.get(pair, 0) != right[pair]:
                raise Wrong(f"{words}: {pair} stands {right[pair]} times in these words, but you have "
                            f"{found.get(pair, 0)}")  # fmt: skip


def _counted(lesson: ModuleType, words: dict[tuple[int, ...], int]) -> dict[Pair, int]:
    given = dict(words)
    answer = lesson.count_pairs(given)
    if given != words:
        raise Wrong("your function has changed the words that it was given, and `learn_merges` goes on with them: look "
                    "at each, and take none away")  # fmt: skip
    if answer is None:
        raise Wrong("the pairs: your function returns None; is a `return` missing?")
    try:
        return {tuple(pair): n for pair, n in dict(answer).items() if n}
    except (TypeError, ValueError):
        raise Wrong("the pairs: a Counter or dictionary {(left, right): number} is expected") from None


def _count_few(lesson: ModuleType) -> None:
    found = _counted(lesson, {(5, 5, 5): 3, (5, 7): 2, (7, 5, 9): 4, (9,): 6, (2, 7, 5, 7): 1})
    right = {(5, 5): 6, (5, 7): 3, (7, 5): 5, (5, 9): 4, (2, 7): 1}
    if found == right:
        return
    if found == {(5, 5): 3, (7, 5): 5, (2, 7): 1}:
        raise Wrong("(5, 7) has one pair, and you count none: the last pair of each word is missing")
    if found == {(5, 5): 3, (5, 7): 3, (7, 5): 4, (2, 7): 1}:
        raise Wrong("(7, 5, 9): you count (7, 5) but not (5, 9): you go from pair to pair in steps of two; each token "
                    "but the last is the left one of a pair")  # fmt: skip
    if found == {(5, 5): 3, (5, 7): 1, (7, 5): 1, (5, 9): 4, (2, 7): 1}:
        raise Wrong("(7, 5) stands in two words, 4 times and once: you have 1, the number of the last word; add up "
                    "over all words")  # fmt: skip
    if (2, 5) in found:
        raise Wrong("(2, 7, 5, 7): you count (2, 5), which are not neighbours; a pair is a token and the next one")
    if found.get((5, 5)) == 3 and found.get((7, 5)) == 5:
        raise Wrong("(5, 5, 5), three times: you count (5, 5) once in it, since it can be merged only once; here every "
                    "place counts, and it stands at two places, so it is 6 in all")  # fmt: skip
    if found == {(5, 5): 2, (5, 7): 2, (7, 5): 2, (5, 9): 1, (2, 7): 1}:
        raise Wrong("(7, 5) stands in one word that occurs 4 times and in one that occurs once: you have 2, not 5; you "
                    "count each different word once, however often the text has it")  # fmt: skip
    if strange := sorted(set(found) - set(right)):
        if any(pair in ((9, 9), (5, 9), (9, 2), (9, 5), (7, 7)) for pair in strange):
            raise Wrong(f"{strange[0]} is no pair inside a word: you also count the last token of a word with the "
                        "first of another")  # fmt: skip
        if len(strange[0]) != 2:
            raise Wrong(f"you count {strange[0]}, which is no pair: the last token of a word has no right neighbour")
        raise Wrong(f"you count {strange[0]}, which are not neighbours in any word")
    if (7, 5) not in found and found.get((5, 7)) == 8:
        raise Wrong("(5, 7) and (7, 5) are two pairs, 3 and 5: you count them as one, but “on” and “no” are not the "
                    "same token")  # fmt: skip
    pair = next(pair for pair in right if found.get(pair) != right[pair])
    raise Wrong(f"{pair} stands {right[pair]} times in the words: you have {found.get(pair, 0)}")


def merge(lesson: ModuleType) -> None:
    def tried(ids: list[int], pair: Pair, right: list[int], mistakes: Iterable[tuple[list[int], str]] = ()) -> None:
        given = list(ids)
        what = f"{pair} → 300 in {ids}"
        try:
            answer = lesson.merge(given, pair, 300)
            found = _ids(answer, what)
        except IndexError:
            raise Wrong(f"{what}: the last token has no neighbour to the right, but your function looks for it "
                        "(IndexError)") from None  # fmt: skip
        if given != ids:
            raise Wrong(f"{what}: the list that your function was given is now {given}; make a new one")
        if answer is given:
            raise Wrong(f"{what}: you return the list that your function was given; make a new one, also if nothing "
                        "was merged")  # fmt: skip
        for wrong, sentence in mistakes:
            if found == wrong:
                raise Wrong(sentence)
        if found == ids != right:
            raise Wrong(f"{what}: nothing was merged; to Python, the list [1, 2] and the tuple (1, 2) are never equal")
        if found != right:
            raise Wrong(f"{what}: you have {found}, not {right}")

    tried(
        [1, 2, 4, 1, 2, 2, 1], (1, 2), [300, 4, 300, 2, 1],
        [
            ([300, 4, 1, 2, 2, 1], "(1, 2) → 300 in [1, 2, 4, 1, 2, 2, 1]: only the first place is merged; merge the "
                                   "pair wherever it occurs"),
            ([300, 300, 4, 300, 300, 300, 300], "every 1 and every 2 became a 300 of its own: a merge replaces a *pair*"
                                                " of neighbours by one token, and leaves a 1 or 2 alone that has no "
                                                "partner"),
            ([300, 4, 300, 2], "(1, 2) → 300 in [1, 2, 4, 1, 2, 2, 1]: you have [300, 4, 300, 2]; the last 1 is lost: "
                               "it has no neighbour to its right, but it is still there"),
            ([300, 2, 4, 300, 2, 2, 1], "(1, 2) → 300 in [1, 2, 4, 1, 2, 2, 1]: each 300 is followed by the 2 that "
                                        "went into it; a merge takes *both* tokens away"),
            ([300, 4, 300, 300], "(2, 1) became 300 as well: the pair is (1, 2), in this order"),
        ],
    )  # fmt: skip
    tried(
        [7, 7, 7], (7, 7), [300, 7],
        [
            ([300, 300], "(7, 7) in [7, 7, 7]: you have two new tokens, but the 7 in the middle cannot be used twice; "
                         "after a merge, go on behind it"),
            ([7, 300], "(7, 7) in [7, 7, 7]: you have [7, 300], which is merged from right to left; the convention is "
                       "left to right"),
        ],
    )  # fmt: skip
    tried([7, 7, 7, 7, 7], (7, 7), [300, 300, 7])
    tried([5, 1], (1, 2), [5, 1])
    tried([3, 1, 2], (1, 2), [3, 300])
    tried([], (1, 2), [])
    tried(
        [21, 2, 1, 25, 1, 2], (1, 2), [21, 2, 1, 25, 300],
        [([2300, 3005, 300], "(1, 2) → 300 in [21, 2, 1, 25, 1, 2]: as text, “1 2” also stands in “21 2” and “1 25”; "
                             "compare ids, not digits")],
    )  # fmt: skip
    random = draws("merge")
    for n_ids in (2, 3, 30):
        ids = random.integers(0, 256, size=n_ids)
        given = [int(i) for i in random.choice(ids, 40)]
        place = int(random.integers(39))
        for pair in ((given[place], given[place + 1]), (given[0], given[0])):
            right: list[int] = []
            for i in given:
                if right[-1:] == [pair[0]] and i == pair[1]:
                    right[-1] = 300
                else:
                    right.append(i)
            tried(given, pair, right)
    a_tuple = "(1, 2) → 300 in the tuple (1, 2, 6): the ids may come as a tuple, too"
    try:
        found = _ids(lesson.merge((1, 2, 6), (1, 2), 300), a_tuple)
    except (AttributeError, TypeError):
        raise Wrong(f"{a_tuple}; `list(ids)` makes a list of them") from None
    if found != [300, 6]:
        raise Wrong(a_tuple)


def learn_merges(lesson: ModuleType) -> None:
    def learned(text: str, n: int, what: str) -> list[Pair]:
        try:
            answer = lesson.learn_merges(text, n)
        except (ValueError, IndexError) as error:  # of `min(())` or `[][0]`
            n_right = len(plain.learn_merges(text, n))
            if n_right == n or (isinstance(error, ValueError) and "empty" not in str(error)):
                raise
            raise Wrong(f"{what}: after {n_right} merges no pair occurs twice, so stop; sooner or later no pair is "
                        "left, and then there is no best one") from None  # fmt: skip
        if answer is None:
            raise Wrong(f"{what}: your function returns None; is a `return` missing?")
        if not isinstance(answer, dict):
            raise Wrong(f"{what}: a dictionary {{pair: new id}} is expected, but you return {type(answer).__name__}")
        if any(not isinstance(pair, tuple) for pair in answer):
            raise Wrong(f"{what}: in your dictionary you look up a pair by its id; {{pair: new id}} is the other way "
                        "round")  # fmt: skip
        if list(answer.values()) != list(range(256, 256 + len(answer))):
            raise Wrong(f"{what}: the new ids are {list(answer.values())[:3]} …; they should be 256, 257, and so on, "
                        "in the order of learning")  # fmt: skip
        return list(answer)

    def shown(pairs: list[Pair]) -> str:
        merges = {pair: 256 + i for i, pair in enumerate(pairs)}
        return ", ".join("+".join(_spelling(i, merges) for i in pair) for pair in pairs) or "none"

    what = "“no no no no no pun pup put”"
    first = learned("no no no no no pun pup put", 1, what)
    n, o, p, u = (plain.BYTES.index(ord(letter)) for letter in "nopu")
    if first == [(p, u)]:
        raise Wrong(f"{what}: your first merge is p+u, which three different words have. But n+o occurs 5 times, in"
                    " two different words: count words as often as they occur")  # fmt: skip
    if not first:
        raise Wrong(f"{what}: you learned nothing, but n+o occurs 5 times; do you take the rarest pair?")
    if len(first) > 1:
        raise Wrong(f"{what}: you were asked for 1 merge and learned {len(first)}")
    if first != [(n, o)]:
        raise Wrong(f"{what}: your first merge is {shown(first)}, not n+o, which occurs 5 times")

    what = "“abracadabra”"
    pairs = learned("abracadabra", 9, what)
    right = list(plain.learn_merges("abracadabra", 9))
    r = plain.BYTES.index(ord("r"))
    if pairs == [(A, B), (B, r), (r, A)]:
        raise Wrong(f"{what}: your merges are a+b, b+r, r+a, all of single bytes. After the first merge there is no "
                    "b beside an r any more: count the words as they are *now*")  # fmt: skip
    if pairs[:2] == [(A, B), (256, r)] or (pairs and pairs[0] in ((B, r), (r, A))):
        raise Wrong(f"{what}: your merges are {shown(pairs)}. Several pairs occur twice; of them, the "
                    "one with the smallest ids goes first, whatever stands first in the text: a+b, then r+a, "
                    "then ab+ra")  # fmt: skip
    if len(pairs) > 3 and pairs[:3] == right:
        raise Wrong(f"{what}: after a+b, r+a, ab+ra no pair occurs twice, but you go on with {shown(pairs)[17:]}: what "
                    "occurs once saves nothing, so stop")  # fmt: skip
    if not pairs:
        raise Wrong(f"{what}: you learned nothing, but a+b occurs twice, and that is enough")
    if pairs != right:
        raise Wrong(f"{what}: your merges are {shown(pairs)}, not a+b, r+a, ab+ra")
    if (two := learned("abracadabra", 2, "two merges")) != right[:2]:
        raise Wrong(f"you were asked for 2 merges and learned {len(two)}")
    if learned("a b c", 5, "“a b c”"):
        raise Wrong("“a b c” has no pair that occurs twice, so nothing is merged")
    if len(learned("no no no", 9, "“no no no”")) != 2:
        raise Wrong("“no no no” has two merges, n+o and ␣+no; then each word is a single token")
    if zero := learned("abracadabra", 0, "no merge at all"):
        raise Wrong(f"you were asked for 0 merges and learned {len(zero)}: look how many there are *before* you merge")
    if learned("", 5, "an empty text"):
        raise Wrong("an empty text has no pairs, so nothing is learned")
    what = "“aaa aaa ab ab ab”"
    if (first := learned("aaa aaa ab ab ab", 1, what)) != [(A, A)]:
        raise Wrong(f"{what}: a+a stands at 4 places, two in each aaa, and comes first; you learned {shown(first)}. "
                    "Every place counts, also one that overlaps with another")  # fmt: skip
    dice = draws("learn_merges")
    for letters in ("ab", "aBc1", "süß🦊'd "):
        words = ["".join(dice.choice(list(letters), size=int(n))) for n in (*dice.integers(1, 6, size=20), 15, 25, 40)]
        text = " ".join(words)
        found, wanted = learned(text, 20, f"“{text}”"), list(plain.learn_merges(text, 20))
        if found != wanted:
            n_right = next((i for i, (a, b) in enumerate(zip(found, wanted, strict=False)) if a != b), len(found))
            yours, ours = (shown(each[: n_right + 1]).split(", ")[n_right:] for each in (found, wanted))
            raise Wrong(f"“{text}”: after {n_right} merges comes {', '.join(ours) or 'no other'}, but you learned "
                        f"{', '.join(yours) or 'nothing more'}")  # fmt: skip
    text = "\n".join(Fables(24).write(random.Random(i)) for i in range(3))
    found, wanted = learned(text, 60, "three fables"), list(plain.learn_merges(text, 60))
    for i, (yours, ours) in enumerate(zip(found, wanted, strict=False)):
        if yours != ours:
            spelling = plain.decode([256 + i], {pair: 256 + k for k, pair in enumerate(found)})
            if spelling[-1:].isspace() and spelling.strip():
                raise Wrong(f"three fables: your merge {i + 1} is {visible(spelling)!r}, the end of a word with the "
                            "space before the next; pairs are counted inside words")  # fmt: skip
            raise Wrong(f"three fables: merge {i + 1} is {shown(wanted[: i + 1]).split(', ')[-1]}, but you learned "
                        f"{shown(found[: i + 1]).split(', ')[-1]}")  # fmt: skip
    if len(found) != len(wanted):
        raise Wrong(f"three fables, 60 merges: you learned {len(found)}")


# ---- There and back ----


def encode(lesson: ModuleType) -> None:
    def n_merges(merges: dict[Pair, int]) -> str:
        return "1 merge" if len(merges) == 1 else f"{len(merges)} merges"

    def tried(text: str, merges: dict[Pair, int], mistakes: Iterable[tuple[list[int], str]] = ()) -> None:
        right = plain.encode(text, merges)
        found = _ids(lesson.encode(text, dict(merges)), f"“{text}”")
        for wrong, sentence in mistakes:
            if found == wrong:
                raise Wrong(sentence)
        if found != right:
            have, want = _in_words(found, merges), _in_words(right, merges)
            raise Wrong(f"“{text}” with {n_merges(merges)}: you have {have}, not {want}")

    tried(
        "abab", {(A, B): 256},
        [([256, A, B], "“abab” with the merge a+b: you have ab · a · b; a merge is made wherever its pair occurs, not "
                       "once"),
         ([97, 98, 97, 98], "“abab”: you begin with 97, the byte of a; but a byte's value is not its id, which is 64 "
                            "for a; `byte_ids` gives ids")],
    )  # fmt: skip
    tried(
        "abc", {(A, B): 256, (B, C): 257},
        [([A, 257], "“abc” with the merges a+b, b+c: you have a · bc, by the merge that was learned last; the one that "
                    "was learned first goes first")],
    )  # fmt: skip
    tried(
        "abc", {(B, C): 256, (A, B): 257, (A, 256): 258},
        [
            ([257, C], "“abc” with the merges b+c, a+b, a+bc: you have ab · c, not abc. a+b stands further left, but "
                       "b+c was learned first, so it goes first"),
            ([A, 256], "“abc” with the merges b+c, a+b, a+bc: you have a · bc; after b+c there is a new pair, a+bc, "
                       "that was learned as well"),
        ],
    )  # fmt: skip
    t, h, i, n, g = plain.encode("thing", {})
    thing = {(t, h): 256, (i, n): 257, (257, g): 258, (256, 257): 259}
    tried(
        "thing", thing,
        [([259, g], "“thing” with the merges t+h, i+n, in+g, th+in: you have thin · g, which takes the longest token "
                    "from the left. in+g was learned before th+in, so it is th · ing")],
    )  # fmt: skip
    tried(
        "abc", {(A, B): 256, (B, C): 257, (A, 257): 258},
        [([258], "“abc” with the merges a+b, b+c, a+bc: abc is a token, but no way leads to it: a+b goes first, "
                 "and takes the b away")],
    )  # fmt: skip
    space = plain.encode(" ", {})[0]
    tried(
        "ab cab", {(B, space): 256, (C, A): 257},
        [([A, 256, 257, B], "“ab cab” with the merge b+␣: you merged the end of a word with the space before the next; "
                            "no token reaches from one word into another, so each word is encoded by itself"),
         ([A, B, 257, B], "“ab cab”: the space is lost, and nobody can put the text together again; a word takes the "
                          "space before it along")],
    )  # fmt: skip
    if lesson.encode("", {}) not in ([], ()):
        raise Wrong("an empty text has no tokens, so its list is empty")
    tried(
        " ab\n", {(A, B): 256},
        [([256], "“ ab” with a line end behind it: what stands before and after the word is lost; spaces and line ends "
                 "are tokens, too")],
    )  # fmt: skip
    comma = plain.encode(",", {})[0]
    tried(
        "ab, ab", {(B, comma): 256, (A, B): 257},
        [([A, 256, space, 257], "“ab, ab” with the merge b+,: a comma is a word of its own, so it never goes together "
                                "with a letter; `split_into_words` knows what a word is")],
    )  # fmt: skip
    dice = draws("encode")
    for letters in ("ab", "abc 's", "ü🦊 "):
        text, new = ("".join(dice.choice(list(letters), size=60)) for _ in range(2))
        learned = plain.learn_merges(text, 12)
        tried(f" {new} ", learned)
        tried(text, {pair: 256 + i for i, pair in enumerate(list(learned)[:4])})  # other merges for the same words
    fables = Fables(24)
    merges = plain.learn_merges("\n".join(fables.write(random.Random(i)) for i in range(5)), 200)
    for text in (fables.write(random.Random(99)), "Füchse, 🦊🦊 and  12 o'clock", "fu\u0308r"):
        right = plain.encode(text, merges)
        found = _ids(lesson.encode(text, merges), "a new text")
        if found != right:
            place = next((k for k, (x, y) in enumerate(zip(found, right, strict=False)) if x != y), 0)
            raise Wrong(f"“{text[:20]}…” with 200 merges: token {place} is {_in_words(found[place:][:1], merges)!r}, "
                        f"not {_in_words(right[place:][:1], merges)!r}")  # fmt: skip


def decode(lesson: ModuleType) -> None:
    text = "süße 🦊🦊"
    merges = plain.learn_merges(text, 2)  # two of the fox's four bytes, then three
    ids = plain.encode(text, merges)

    def decoded(ids: list[int], what: str) -> str:
        try:
            answer = lesson.decode(list(ids), dict(merges))
        except UnicodeDecodeError:
            raise Wrong(f"{what}: it cannot be decoded, and your function raises an error; a model may stop in the "
                        "middle of a character, so put the sign � there instead") from None  # fmt: skip
        except (IndexError, KeyError) as error:
            raise Wrong(f"{what}: your function looks for a token that is not there ({type(error).__name__}); each "
                        "call brings its own merges, so keep no table from one call to the next") from None  # fmt: skip
        if answer is None:
            raise Wrong(f"{what}: your function returns None; is a `return` missing?")
        if not isinstance(answer, str):
            raise Wrong(f"{what}: a text is expected, but you return {type(answer).__name__}")
        return answer

    plain_text = decoded(plain.encode("Otto", merges), "the tokens of “Otto”")
    if plain_text == bytes(plain.encode("Otto", merges)).decode():
        raise Wrong(f"the tokens of “Otto” become “{plain_text}”: an id is not the byte itself; 64 is the token of “a”,"
                    " whose byte is 97")  # fmt: skip
    if plain_text != "Otto":
        raise Wrong(f"the tokens of “Otto” become “{plain_text}”")
    found = decoded(ids, f"the tokens of “{text}”")
    bytes_of = [plain.BYTES.index(i) for i in range(256)]
    if "\\x" in found or "␣" in found:
        raise Wrong(f"the tokens of “{text}” become “{found}”: this is for people who look at tokens; the text itself "
                    "is asked for, with its spaces and its ü")  # fmt: skip
    if found == text.encode().decode("latin-1"):
        raise Wrong(f"the tokens of “{text}” become “{found}”: you made a character of each byte, but ü has two bytes "
                    "and 🦊 has four")  # fmt: skip
    if found != text and found.replace("�", "") in ("se ", "s e ", " "):
        raise Wrong(f"the tokens of “{text}” become “{found}”: ü, ß and 🦊 are spread over several tokens, and no part "
                    "is a character by itself; put the bytes of all tokens together first")  # fmt: skip
    if found != text:
        raise Wrong(f"the tokens of “{text}” become “{found}”")
    cut = [bytes_of[byte] for byte in "o🦊".encode()[:-1]]
    found = decoded(cut, "“o” and three of the four bytes of 🦊")
    if found == "o":
        raise Wrong("“o” and three of the four bytes of 🦊: the rest vanishes without a trace; put the sign � there, so"
                    " that the reader sees that something is missing")  # fmt: skip
    if found.rstrip("�") != "o":
        raise Wrong(f"“o” and three of the four bytes of 🦊 become {found!r}, not 'o�'")
    found = decoded([*cut, *cut[:1]], "“o”, three of the four bytes of 🦊, and “o” again")
    if found.rstrip("�") == "o":
        raise Wrong(f"“o”, three of the four bytes of 🦊, and “o” again become {found!r}: a sign for the part of a "
                    "character, but what comes after it is lost")  # fmt: skip
    if found.replace("�", "") != "oo":
        raise Wrong(f"“o”, three of the four bytes of 🦊, and “o” again become {found!r}, not 'o�o'")
    spaced = " ab  ab\r\n"
    if (found := decoded(plain.encode(spaced, {}), "a text with spaces")) != spaced:
        raise Wrong(f"the tokens of {spaced!r} become {found!r}: each space and line end is in the tokens, also at the "
                    "ends, and has to come back as it was")  # fmt: skip
    signs = "a��b"
    if (found := decoded(plain.encode(signs, merges), "a text with the sign � in it, twice")) != signs:
        raise Wrong(
            f"the tokens of {signs!r} become {found!r}: � is a character with three bytes, and may be in a text"
        )
    if decoded([], "no tokens"):
        raise Wrong("no tokens make an empty text")
    dice = draws("decode")
    for letters in ("ab ", "aü🦊\n "):
        text = "".join(dice.choice(list(letters), size=80))
        merges = plain.learn_merges(text + "ababababab" * 3, 15)
        found = decoded(plain.encode(text, merges), "a text at random")
        if found != text and max(max(pair) for pair in merges) > 255:
            raise Wrong(f"the tokens of {text!r}, with {len(merges)} merges, become {found!r}; a merge may join what "
                        "was merged before, many times over")  # fmt: skip
        if found != text:
            raise Wrong(f"the tokens of {text!r} become {found!r}")


# ---- Comparing ----


def bits_per_byte(lesson: ModuleType) -> None:
    text, nats = "süße 🦊", [2.0, 0.5, 1.5, 3.0, 0.25]
    n_bytes, total = len(text.encode()), 7.25
    right = total / math.log(2) / n_bytes
    expect(
        lesson.bits_per_byte(nats, text),
        right,
        f"5 tokens with 7.25 nats in all, 11 bytes (“{text}”)",
        [
            (total / n_bytes, f"7.25 nats over 11 bytes: you have {total / n_bytes:.3f}, which is nats per byte; a bit "
                              "is only 0.693 nats, so the same surprise is more bits"),
            (total * math.log(2) / n_bytes, "a bit is 0.693 nats, so the same surprise is *more* bits than nats: you "
                                            "have fewer"),
            (total / math.log(2) / 5, "you have bits per *token*: there are 5 tokens but 11 bytes. Tokens differ from "
                                      "tokenizer to tokenizer; the bytes of a text do not"),
            (total / math.log(2) / 5 / n_bytes, "you divide by the 5 tokens and then by the 11 "
                                                "bytes: add up, and divide once, by the bytes"),
            (total / math.log(2), "you have the bits of the whole text, 11 bytes together"),
            (right / 8, "you divide by 88, the bits in which the text is stored; these bits measure surprise, and one "
                        "byte counts as one"),
            (total / 0.693 / n_bytes, "0.693 is a rounded ln 2; `math.log(2)` has all its digits"),
            (total / 5, "you have nats per token, which is the usual loss; bits per byte are asked for"),
            (total / math.log(2) / len(text), f"you divide by {len(text)}, the characters; ü and ß have two bytes each "
                                              "in UTF-8 and 🦊 has four, so there are 11 bytes"),
        ],
    )  # fmt: skip

    def of(nats: Sequence[float], text: str, what: str, mistakes: Iterable[tuple[float, str]] = ()) -> None:
        right = math.fsum(nats) / math.log(2) / len(text.encode())
        try:
            with np.errstate(all="ignore"):
                answer = lesson.bits_per_byte(nats, text)
        except (OverflowError, ValueError, ZeroDivisionError) as error:
            answer = math.nan
            if isinstance(error, ValueError) and "math domain" not in str(error):
                raise
        if answer is not None and np.ndim(answer) == 0 and not np.isfinite(answer):
            raise Wrong(f"{what}: no computer has room for e^{sum(nats):.0f}, nor for the probability of a whole text, "
                        "which rounds to 0. Bits and nats differ by a factor, so no exponential is needed")  # fmt: skip
        expect(answer, right, what, mistakes)

    of([1.5] * 2000, "abcd" * 500, "2,000 tokens of 1.5 nats each")
    lines = " ab\n"
    too_short = f"{lines!r} has 4 bytes: the space before and the line end after count, too"
    of([0.5, 0.25], lines, f"0.75 nats and {lines!r}", [(0.75 / math.log(2) / 2, too_short)])
    dice = draws("bits_per_byte")
    for n in (1, 7, 300):
        text = "".join(dice.choice(list("aüß🦊 \n"), size=n))
        of([float(x) for x in dice.exponential(2, size=int(dice.integers(1, n + 1)))], text, f"the text {text[:20]!r}")


def floor_in_other_tokens(lesson: ModuleType) -> None:
    lengths, others = [9, 4, 14], [49, 14, 94]
    total = 0.8 * 30
    right = total / 160
    ratios = sum(0.8 * (n + 1) / (m + 1) for n, m in zip(lengths, others, strict=True)) / 3
    ends = "each document ends with a token that must be predicted, too, and your numbers leave it out"
    expect(
        lesson.floor_in_other_tokens(0.8, lengths, others),
        right,
        "0.8 nats per token; documents of 9, 4, 14 tokens become 49, 14, 94",
        [
            (0.8 * 27 / 157, f"you have {0.8 * 27 / 157:.4f}, not 0.15: {ends}"),
            (0.8 * 27 / 160, f"you have {0.8 * 27 / 160:.4f}, not 0.15: {ends} on the first side"),
            (0.8 * 30 / 157, f"you have {0.8 * 30 / 157:.4f}, not 0.15: {ends} on the other side"),
            (0.8 * 28 / 158, f"you have {0.8 * 28 / 158:.4f}, not 0.15: each of the three documents has an end, not "
                             "only the last"),
            (0.8 * 160 / 30, "you have 4.27, more than before: the same surprise is spread over *more* tokens, so each "
                             "has less"),
            (0.8 * 157 / 27, "you have more than before: the same surprise is spread over *more* tokens, so each has "
                             "less"),
            (0.8 * 30, "you have 24, the nats of all documents together; the other tokens have to share them"),
            (0.8 * 30 / 3, "you have 8 nats per document; nats per token of the other tokenizer are asked for"),
            (0.8, "you have 0.8 again: per token the floor changes; what does not change is the surprise of a whole "
                  "document"),
            (ratios, f"you have {ratios:.4f}, the mean of each document's own ratio; the floor per token is all "
                     "surprise divided by all tokens, so long documents count more"),
        ],
    )  # fmt: skip
    dice = draws("floor_in_other_tokens")
    for n in (1, 2, 5):
        nats, first, other = float(dice.uniform(0.1, 4)), dice.integers(0, 200, n), dice.integers(1, 900, n)
        right = nats * sum(int(each) + 1 for each in first) / sum(int(each) + 1 for each in other)
        what = f"{nats:.3f} nats per token; documents of {first.tolist()} tokens become {other.tolist()}"
        expect(lesson.floor_in_other_tokens(nats, first.tolist(), other.tolist()), right, what)
    alike = "0.8 nats per token; three documents of 4 tokens each become 9 tokens each"
    expect(lesson.floor_in_other_tokens(0.8, [4, 4, 4], [9, 9, 9]), 0.4, alike)
    twice = "0.8 nats per token; documents of 9, 9, 4 tokens become 49, 49, 14: two may be equally long, and both count"
    expect(lesson.floor_in_other_tokens(0.8, [9, 9, 4], [49, 49, 14]), 0.8 * 25 / 115, twice)
