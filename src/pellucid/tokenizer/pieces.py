"""The tokens of a text, and the merges that made each of them (`pellucid tokenize`)."""

from typing import NamedTuple

from pellucid.tokenizer.tokenizer import Tokenizer

END = "<|endoftext|>"  # shown for the end of a document, whatever its control token is called
MARKS = {" ": "␣", "\n": "⏎", "\t": "⇥"}


class Merge(NamedTuple):
    """The `rank`-th pair that was learned, counted from 1, and the token that it made, as `visible` shows them."""

    rank: int
    left: str
    right: str
    token: str


class Piece(NamedTuple):
    """A token of a text. merges: all that made it from bytes, in order."""

    text: str
    id: int
    bytes: bytes
    merges: list[Merge]


def cut(tokenizer: Tokenizer, text: str) -> list[Piece]:
    """The tokens of a text. Raises DataError as `tokenizer.encode` does."""
    ranks = {id_: rank for rank, id_ in enumerate(tokenizer.merges, start=1)}

    def shown(id_: int) -> str:
        return visible(token_text(tokenizer, id_))

    def merges_of(id_: int) -> set[int]:
        return {id_}.union(*map(merges_of, tokenizer.merges[id_])) if id_ in tokenizer.merges else set()

    def merge(id_: int) -> Merge:
        left, right = tokenizer.merges[id_]
        return Merge(ranks[id_], shown(left), shown(right), shown(id_))

    return [
        Piece(shown(id_), id_, tokenizer.token_bytes(id_), sorted(map(merge, merges_of(id_))))
        for id_ in tokenizer.encode(text)
    ]


def to_json(tokenizer: Tokenizer, text: str) -> dict[str, object]:
    """The contents of the table, for JSON."""
    pieces = cut(tokenizer, text)
    return {
        "vocab_size": tokenizer.vocab_size,
        "n_merges": len(tokenizer.merges),
        "n_words": len(text.split()),
        "n_bytes": len(text.encode()),
        "tokens": [
            {**piece._asdict(), "bytes": list(piece.bytes), "merges": [merge._asdict() for merge in piece.merges]}
            for piece in pieces
        ],
    }


def table(tokenizer: Tokenizer, text: str) -> str:
    """A row for each token, then the compression in tokens per word and bytes per token."""
    from pellucid import tables

    pieces, rows = cut(tokenizer, text), []
    for piece in pieces:
        steps = [f"{left}+{right} → {token} (#{rank})" for rank, left, right, token in piece.merges]
        merges = ", ".join(step.replace(" ", tables.UNBROKEN) for step in steps)
        rows.append((piece.text, str(piece.id), piece.bytes.hex(" "), merges))
    heading = ("token", "id", "bytes", "merges that made it" if tokenizer.merges else "")
    shown = tables.table(heading, rows, words=(0, 2, 3)) if rows else "  ".join(heading)
    return f"{shown}\n\n{_summary(tokenizer, text, len(pieces))}"


def visible(text: str) -> str:
    """A token's text with visible blanks and line ends, and without characters that move a terminal's cursor."""
    return "".join(MARKS.get(c) or (c if c.isprintable() else ascii(c)[1:-1]) for c in text)


def _summary(tokenizer: Tokenizer, text: str, n_tokens: int) -> str:
    from pellucid.tables import folded

    n_words, n_bytes = len(text.split()), len(text.encode())
    ratios = f": {n_tokens / n_words:.2f} tokens per word, {n_bytes / n_tokens:.2f} bytes per token" if n_words else ""
    vocabulary = _counts(token=tokenizer.vocab_size, merge=len(tokenizer.merges))
    return f"{folded(_counts(token=n_tokens, word=n_words, byte=n_bytes) + ratios)}\nvocabulary: {vocabulary}"


def _counts(**numbers: int) -> str:
    return ", ".join(f"{number:,} {thing}{'' if number == 1 else 's'}" for thing, number in numbers.items())


def token_text(tokenizer: Tokenizer, id_: int) -> str:
    """The text of a token; part of a character is shown by its bytes, as \\xf0."""
    if id_ in tokenizer.control_ids:
        return END if id_ == tokenizer.end_of_text else tokenizer.control_token(id_)
    return tokenizer.token_bytes(id_).decode("utf-8", "backslashreplace")
