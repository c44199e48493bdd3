"""Documents of ids that are no text, from local files: notes of melodies, moves of games, bases of DNA.

[60, 62, 64, 62]
{"ids": [60, 62, 64, 62]}
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from pellucid.config.data import MOST_IDS
from pellucid.corpora.corpus import Piece, Split
from pellucid.corpora.hugging_face import DataSet
from pellucid.errors import DataError

IDS_OF_PIECE = 512


@dataclass
class TokensCorpus(DataSet):
    """One document per row: the list of ids in column `ids_field`, written as text with a blank before each.

    So whatever handles text handles them, too. Raises as a DataSet does, and DataError for a row without such a list.
    """

    kind = "tokens"
    is_text: ClassVar[bool] = False

    ids_field: str = "ids"

    def pieces(self, split: Split) -> Iterator[Piece]:
        """The documents of a split in the order of the rows."""
        for ids in self.documents(split, self._ids):
            for i in range(0, len(ids) or 1, IDS_OF_PIECE):
                text = "".join(f" {id_}" for id_ in ids[i : i + IDS_OF_PIECE])
                yield Piece(text, ends_document=i + IDS_OF_PIECE >= len(ids))

    def _ids(self, split: str) -> Iterator[list[int]]:
        for where, values in self.rows(split, [self.ids_field]):
            if self.ids_field not in values:
                fix = f"name one of its columns in corpus.ids_field: {', '.join(values)}"
                raise DataError(where, f"there is no column {self.ids_field}", fix)
            ids = values[self.ids_field]
            if not isinstance(ids, list):
                what = f"{self.ids_field} holds {type(ids).__name__}, not a list of ids"
                raise DataError(where, what, "give whole numbers, as in [60, 62, 64]")
            if (wrong := next((i for i in ids if type(i) is not int or not 0 <= i < MOST_IDS), None)) is not None:
                raise DataError(where, f"{wrong!r} is no id", f"give whole numbers from 0 to {MOST_IDS - 1:,}")
            yield ids
