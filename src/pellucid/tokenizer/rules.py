"""Which tokenizers of other projects can be expressed here: those whose tokens spell the text that they are made of."""

import json
from collections.abc import Iterable
from itertools import chain
from typing import Any

import tokenizers

from pellucid.errors import DataError
from pellucid.tokenizer.tokenizer import (
    IDS,
    byte_of_symbol,
    has_pieces,
    panics_are_errors,
    spelled,
    steps,
    template_ids,
)

# Ways to cut a text before byte-pair encoding that lose none of it.
LOSSLESS_CUTS = ("ByteLevel", "Split", "Digits")
MOST_TOKENS = 1 << 24  # this many ids take little memory; no tokenizer in use has a tenth
OTHER_KIND = "use one of byte-level byte-pair encoding, as those of Llama 3 and Qwen, or of SentencePiece, as Llama 2's"


def require_harmless(tokenizer_json: str, source: str) -> None:
    """Raise DataError for what would end the library, and us: memory for all ids up to a huge one, a wrong prefix."""
    try:
        description = json.loads(tokenizer_json)
        ids = [*description["model"]["vocab"].values(), *(token["id"] for token in description["added_tokens"])]
        largest, model = max(ids, default=0), description["model"]
        marks = model.get("type") != "WordPiece" and model.get("continuing_subword_prefix")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return  # the library's own message is clearer
    if marks:
        raise DataError(source, "a tokenizer that Pellucid cannot express: it marks tokens inside words", OTHER_KIND)
    if isinstance(largest, int) and largest >= max(len(ids), MOST_TOKENS):
        what = f"its ids have gaps: {len(ids):,} tokens, the last with id {largest:,}"
        raise DataError(source, f"a tokenizer that Pellucid cannot express: {what}", OTHER_KIND)


def not_expressible(description: dict[str, Any], ids: Iterable[int]) -> str | None:
    """Why texts could not be decoded exactly from this tokenizer's tokens; None if they can. ids: all that it has."""
    model, normalizer, added = (description[key] for key in ("model", "normalizer", "added_tokens"))
    ids, is_of_pieces = sorted(ids), has_pieces(description)
    is_of_ids = model["type"] == IDS and model["vocab"] == {str(id_): id_ for id_ in range(len(model["vocab"]))}
    if not is_of_ids and model["type"] not in (("BPE", "Unigram") if is_of_pieces else ("BPE",)):
        return f"its model is {model['type']}, not byte-pair encoding"
    if any(map(model.get, ("dropout", "end_of_word_suffix"))) or (model.get("byte_fallback") and not is_of_pieces):
        return "its tokens are not runs of bytes (they may be marks at the ends of words)"
    if ids != list(range(len(ids))):
        return f"its ids have gaps: {len(ids):,} tokens, the last with id {ids[-1]:,}"
    controls = {token["id"] for token in added if token["special"]}
    if not controls:
        return "no control token ends a document"
    if not is_of_pieces and (  # of pieces, each text is compared with its tokens (`encode_exactly`)
        stripping := [each["content"] for each in added if not each["special"] and (each["lstrip"] or each["rstrip"])]
    ):
        return f"its token {stripping[0]!r} swallows the blanks beside it"
    if doubles := sorted(spelled(model) & {each["content"] for each in added if each["special"]}):
        return f"its control token {doubles[0]!r} is also a token of ordinary text"
    if others := sorted({*chain(*template_ids(description["post_processor"]))} - controls):
        return f"its template puts id {others[0]}, which is not a control token, beside a text"
    if is_of_pieces:
        from pellucid.tokenizer import sentence_pieces

        return sentence_pieces.not_expressible(model, steps(description, "normalizer", "pre_tokenizer"), controls)
    if normalizer and normalizer["type"] != "NFC":  # text in that form stays as it is; `encode_exactly` finds any other
        return f"it changes the text first ({normalizer['type']})"
    splits = steps(description, "pre_tokenizer")
    if is_of_ids:  # they are read and written by us, whatever the library would do
        return None
    if not splits:
        return "it joins characters across blanks" if model["merges"] or max(map(len, model["vocab"])) > 1 else None
    for cut in splits:
        if cut["type"] not in LOSSLESS_CUTS or cut.get("add_prefix_space") or cut.get("behavior") == "Removed":
            return f"it changes the text where it cuts it ({cut['type']})"
    if any(cut["type"] == "ByteLevel" for cut in splits[:-1]):
        return "it writes bytes as symbols twice"
    if splits[-1]["type"] != "ByteLevel" or not byte_of_symbol().keys() <= model["vocab"].keys():
        return "it lacks tokens of single bytes"
    return None


def try_its_rules(library_tokenizer: tokenizers.Tokenizer, rules: list[dict[str, Any]], source: str) -> None:
    """Raise DataError for a regular expression that never ends on a run of one of the characters that it is made of."""
    patterns = "".join(str(rule["pattern"].get("Regex", "")) for rule in rules if "pattern" in rule)
    for character in sorted(set(patterns)):
        with panics_are_errors(source):
            library_tokenizer.encode(40 * character)
