"""Text as it comes: whole characters, and nothing that may yet become a stop string."""

import itertools
from collections.abc import Sequence
from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

import foreign_tokenizers as foreign
from pellucid.generation.stream import TextStream, first_stop
from pellucid.tokenizer import Tokenizer
from pellucid.tokenizer.train import train_byte_pairs

FAMILY = "👨‍👩‍👧"  # three people and two zero-width joiners: one glyph of 18 bytes
TOKENIZER = train_byte_pairs([f"the fox. ça va? {FAMILY}\0" * 3], vocab_size=270, special_tokens=["<|endoftext|>"])


def test_a_blank_before_each_text_is_left_out_where_a_text_begins_and_not_where_it_goes_on() -> None:
    llama2 = Tokenizer.from_json(foreign.llama2().to_str())
    ids = llama2.encode("The hen ran")
    for goes_on, expected in ((False, "The hen ran"), (True, " The hen ran")):
        assert emitted(TextStream(llama2, goes_on=goes_on), ids) == expected


texts_of_few_letters = st.text("aab", max_size=30)
stop_strings = st.lists(st.text("ab", min_size=1, max_size=5), max_size=3)


def emitted(stream: TextStream, token_ids: Sequence[int]) -> str:
    """All text of a stream that gets these tokens until it ends, the last of them as the last that there is."""
    for i, id_ in enumerate(token_ids):
        if stream.finish_reason is None:
            stream.add(id_, is_last=i == len(token_ids) - 1)
    return "".join(piece.text for piece in stream.pieces)


def cut_anywhere(text: str, cuts: list[int]) -> list[bytes]:
    borders = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    return [text[start:end].encode() for start, end in itertools.pairwise(borders)]


def in_pieces(text: str, cuts: list[int], stop: Sequence[str]) -> str:
    """Each piece as if it was a token."""
    pieces = cut_anywhere(text, cuts)
    return emitted(TextStream(SimpleNamespace(token_bytes=pieces.__getitem__), stop), range(len(pieces)))


@given(st.lists(st.integers(0, TOKENIZER.vocab_size - 1), max_size=60))
def test_streamed_text_is_the_decoded_text_for_any_tokens(token_ids: list[int]) -> None:
    stream = TextStream(TOKENIZER)
    assert emitted(stream, token_ids) == TOKENIZER.decode(token_ids)
    assert [token.id for piece in stream.pieces for token in piece.tokens] == token_ids


@given(texts_of_few_letters, st.text("ab", min_size=1, max_size=5), st.lists(st.integers(0, 30)))
def test_in_whatever_pieces_a_text_comes_it_ends_where_str_find_finds_the_stop_string(
    text: str, stop: str, cuts: list[int]
) -> None:
    assert in_pieces(text, cuts, [stop]) == (text[: text.find(stop)] if stop in text else text)


@given(texts_of_few_letters, stop_strings, st.lists(st.integers(0, 30)))
def test_of_several_stop_strings_the_one_that_is_complete_first_counts_in_whatever_pieces(
    text: str, stop: list[str], cuts: list[int]
) -> None:
    ends = [text.find(each) + len(each) for each in stop if each in text]
    expected = text
    if ends:  # of those that are complete there, the longest begins first
        written = text[: min(ends)]
        expected = min((written.removesuffix(each) for each in stop), key=len)
    assert in_pieces(text, cuts, stop) == expected
    assert first_stop(text, stop) == (len(expected) if ends else None)


@given(texts_of_few_letters, stop_strings)
def test_only_what_may_become_a_stop_string_is_held_back(text: str, stop: list[str]) -> None:
    stream = TextStream(SimpleNamespace(token_bytes=lambda i: text[i].encode()), stop)
    for i in range(len(text)):
        stream.add(i)
        if stream.finish_reason:
            break
        given_so_far = "".join(piece.text for piece in stream.pieces)
        held = text[: i + 1].removeprefix(given_so_far)
        assert not held or any(each.startswith(held) for each in stop)


@given(st.text())
def test_a_stream_never_splits_a_character_and_a_token_comes_with_its_text(text: str) -> None:
    stream, so_far = TextStream(TOKENIZER), ""
    assert emitted(stream, TOKENIZER.encode(text)) == text
    for piece in stream.pieces:
        assert piece.text or piece.tokens
        so_far += piece.text
        for token in piece.tokens:
            assert token.offset < len(so_far)
            assert TOKENIZER.token_bytes(token.id).decode("utf-8", "ignore")[:1] in so_far[token.offset :]


def test_a_character_appears_with_its_last_byte_and_an_unfinished_one_at_the_end() -> None:
    one_byte_each = [TOKENIZER.token_bytes(id_) for id_ in range(256)]
    stream, n_read_by_piece = TextStream(TOKENIZER), []
    for n_read, byte in enumerate("é👨é🦊".encode()[:-1], start=1):
        n_before = len(stream.pieces)
        stream.add(one_byte_each.index(bytes([byte])))
        n_read_by_piece += [(piece.text, n_read) for piece in stream.pieces[n_before:]]
    assert n_read_by_piece == [("é", 2), ("👨", 6), ("é", 8)]
    stream.end("end_of_text")
    assert (stream.pieces[-1].text, stream.finish_reason) == ("\ufffd", "end_of_text")


def test_the_tokens_of_a_piece_are_those_that_begin_before_a_stop_string() -> None:
    pieces = [b"ab", b"c", b"d", b"e"]
    stream = TextStream(SimpleNamespace(token_bytes=pieces.__getitem__), ["cde"])
    assert emitted(stream, range(4)) == "ab"
    assert [(piece.text, [token.id for token in piece.tokens]) for piece in stream.pieces] == [("ab", [0]), ("", [])]
    assert stream.finish_reason == "stop"
