from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.data.token_file import TokenFile, TokenFileWriter, token_type


def write(path, documents, *, vocab_size=1000, end_of_text=999):
    with TokenFileWriter(path, vocab_size=vocab_size, end_of_text=end_of_text) as writer:
        for document in documents:
            writer.append(np.array([*document, end_of_text], dtype=np.uint32), ends=[len(document)])
    return TokenFile.open(path, vocab_size)


@given(st.lists(st.lists(st.integers(0, 998), max_size=9), max_size=9))
def test_documents_are_read_as_they_were_written(tmp_path_factory, documents):
    file = write(tmp_path_factory.mktemp("tokens") / "train.bin", documents)
    edges = file.boundaries.tolist()
    assert [file.tokens[a + 1 : b].tolist() for a, b in pairwise(edges)] == documents
    assert file.tokens[file.boundaries].tolist() == [999] * (len(documents) + 1)
    assert len(file.boundaries) == len(documents) + 1
    assert len(file.tokens) == sum(map(len, documents)) + len(documents) + 1
    assert (file.end_of_text, file.n_targets, file.name) == (999, len(file.tokens) - 1, "train")


def test_pieces_of_a_document_are_joined(tmp_path):
    with TokenFileWriter(tmp_path / "a.bin", vocab_size=10, end_of_text=9) as writer:
        for piece in ([1, 2], [], [3]):
            writer.append(np.array(piece, dtype=np.uint32))
        writer.append(np.array([9]), ends=[0])
    assert TokenFile.open(tmp_path / "a.bin", 10).tokens.tolist() == [9, 1, 2, 3, 9]


@pytest.mark.parametrize(("vocab_size", "n_bytes"), [(2, 2), (65_536, 2), (65_537, 4), (200_000, 4)])
def test_the_largest_id_fits(tmp_path, vocab_size, n_bytes):
    assert token_type(vocab_size).itemsize == n_bytes
    file = write(tmp_path / "a.bin", [[0, vocab_size - 2]], vocab_size=vocab_size, end_of_text=vocab_size - 1)
    assert file.tokens.tolist() == [vocab_size - 1, 0, vocab_size - 2, vocab_size - 1]
    assert (tmp_path / "a.bin").stat().st_size == 4 * n_bytes


def test_files_are_little_endian(tmp_path):
    write(tmp_path / "a.bin", [[0x102]], vocab_size=0x200, end_of_text=0)
    assert (tmp_path / "a.bin").read_bytes() == b"\0\0\x02\x01\0\0"
    assert (tmp_path / "a.documents.bin").read_bytes() == bytes(8) + b"\2" + bytes(7)
