from hypothesis import given
from hypothesis import strategies as st

from pellucid.corpora.corpus import PIECE_LENGTH, Piece, cut_into_pieces

SEPARATORS = ["|", "||", "ab", "\n\n"]


def documents_of(pieces: list[Piece]) -> list[str]:
    """Pieces put together again."""
    documents, text = [], ""
    for piece in pieces:
        text += piece.text
        if piece.ends_document:
            documents.append(text)
            text = ""
    assert text == "", "the last piece ends a document"
    return documents


@given(st.text("ab|\n ", max_size=40), st.sampled_from(SEPARATORS), st.integers(1, 7))
def test_documents_do_not_depend_on_where_blocks_end(text, separator, block_length):
    blocks = [text[i : i + block_length] for i in range(0, len(text), block_length)]
    expected = [document for document in text.split(separator) if document.strip()]
    assert documents_of(list(cut_into_pieces(blocks, separator))) == expected


def test_a_long_document_comes_in_pieces_cut_before_a_blank():
    text = "a few words\n" * (PIECE_LENGTH // 4)
    pieces = list(cut_into_pieces([text]))
    assert len(pieces) == 4
    assert documents_of(pieces) == [text]
    assert all(len(piece.text) <= PIECE_LENGTH for piece in pieces)
    assert all(piece.text[0] in " \n" for piece in pieces[1:])


def test_a_long_line_without_blanks_comes_in_pieces_of_bounded_length():
    text = "x" * (3 * PIECE_LENGTH + 5)
    pieces = list(cut_into_pieces([text]))
    assert [len(piece.text) for piece in pieces] == [PIECE_LENGTH] * 3 + [5]


def test_a_separator_is_found_where_a_long_document_is_cut():
    for shift in range(-4, 5):
        first = "x" * (PIECE_LENGTH + shift)
        blocks = [first + "<e", "nd>", "second"]
        assert documents_of(list(cut_into_pieces(blocks, "<end>"))) == [first, "second"]


def test_blank_documents_are_left_out():
    assert documents_of(list(cut_into_pieces(["a|| \n|b|\n"], "|"))) == ["a", "b"]
    assert list(cut_into_pieces([" \n"])) == []
    assert list(cut_into_pieces([])) == []
