"""Converts a tokenizer to the files of a model folder of Hugging Face transformers, and back.

There, several files name the control tokens that begin and end a text: a template in tokenizer.json,
tokenizer_config.json (names), generation_config.json and config.json (ids). Here only the template does.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

import tokenizers

from pellucid.errors import DataError
from pellucid.exchange.folders import json_object
from pellucid.tokenizer import Tokenizer
from pellucid.tokenizer.chat import JINJA
from pellucid.tokenizer.tokenizer import template_ids

LLAMA3_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
    r"\s+(?!\S)|\s+"
)
QWEN2_WORDS = LLAMA3_WORDS.replace(r"\p{N}{1,3}", r"\p{N}")


def _by(words: str) -> list[dict[str, Any]]:
    return [
        {"type": "Split", "pattern": {"Regex": words}, "behavior": "Isolated", "invert": False},
        {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False},
    ]


# How well-known models cut a text into words, by llama.cpp's names: the cuts, the normalizer, and whether a word that
# is in the vocabulary is taken as it is.
CUTS: dict[str, tuple[list[dict[str, Any]], dict[str, str] | None, bool]] = {
    "gpt-2": ([{"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}], None, False),
    "llama-bpe": (_by(LLAMA3_WORDS), None, True),
    "qwen2": (_by(QWEN2_WORDS), {"type": "NFC"}, False),  # transformers 5 cuts so for any Qwen2
}


def cuts_as(tokenizer: Tokenizer) -> str | None:
    """The name in CUTS of the model whose tokenizer normalises and cuts a text in the same way, if there is one."""
    saved = json.loads(tokenizer.to_json())
    cut = saved["pre_tokenizer"] or {}
    without_offsets = [
        {key: value for key, value in each.items() if key != "trim_offsets"} for each in cut.get("pretokenizers", [cut])
    ]
    here = without_offsets, saved["normalizer"], bool(saved["model"].get("ignore_merges"))
    return next((name for name, cuts in CUTS.items() if cuts == here), None)


def tokenizer_files(tokenizer: Tokenizer, context_length: int) -> dict[str, str]:
    """tokenizer.json and tokenizer_config.json, with which transformers gives the ids of `Tokenizer.encode`.

    It puts end_of_text before a text, because the model has never seen a text without it, unless add_special_tokens is
    False.
    """
    names = _control_tokens(tokenizer)
    begin, end = names[tokenizer.end_of_text], names[end_ids(tokenizer)[0]]
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": begin,
        "eos_token": end,
        "pad_token": end,
        "padding_side": "left",  # prompts of a batch end side by side, where their texts begin
        # Text that spells a control token stays text, unless there is a chat template, which writes them as text.
        "split_special_tokens": not tokenizer.has_chat_tokens,
        "clean_up_tokenization_spaces": False,
        "model_max_length": context_length,
        **({"chat_template": JINJA} if tokenizer.has_chat_tokens else {}),
    }
    template = _template(names, [tokenizer.end_of_text], [])
    return {
        "tokenizer.json": _with_template(tokenizer.to_json(), template).to_str(pretty=True),
        "tokenizer_config.json": json.dumps(config, indent=2, ensure_ascii=False) + "\n",
    }


def generation_settings(tokenizer: Tokenizer, context_length: int) -> dict[str, Any]:
    """The contents of generation_config.json: samples and stops as `pellucid generate`; never other control tokens."""
    ends = end_ids(tokenizer)
    never = [id_ for id_ in tokenizer.control_ids if id_ not in ends]
    return {
        "bos_token_id": tokenizer.end_of_text,
        "eos_token_id": ends[0] if len(ends) == 1 else ends,
        "pad_token_id": ends[0],
        "do_sample": True,
        "top_k": 0,
        "max_length": context_length,
        **({"suppress_tokens": never} if never else {}),
    }


def end_ids(tokenizer: Tokenizer) -> list[int]:
    """All ids that end a text; the one that also begins it comes last."""
    return [*tokenizer.stop_ids[1:], tokenizer.end_of_text]


def imported_tokenizer(files: Mapping[str, str], vocab_size: int, where: str) -> Tokenizer:
    """The tokenizer of a folder; `files` maps names to texts, of which only tokenizer.json is required.

    If the model has more rows than its tokenizer has tokens, reserved control tokens fill these ids. Raises DataError
    for a tokenizer that cannot be expressed, or has more tokens than the model has rows.
    """
    tokenizer = Tokenizer.from_json(files["tokenizer.json"], f"{where}/tokenizer.json")
    if tokenizer.vocab_size > vocab_size:
        what = f"{tokenizer.vocab_size:,} tokens are more than the {vocab_size:,} rows of the model's embedding"
        raise DataError(f"{where}/tokenizer.json", what, "put the model's own tokenizer.json there")
    settings = {
        name: json_object(text, DataError, f"{where}/{name}", "download or save the model again")
        for name, text in files.items()
        if name != "tokenizer.json"
    }
    before, after = _begin_and_ends(tokenizer, settings)
    library = _with_template(tokenizer.to_json(), None)
    library.add_special_tokens([f"<|reserved_{id_}|>" for id_ in range(tokenizer.vocab_size, vocab_size)])
    imported = Tokenizer.from_json(library.to_str(), f"{where}/tokenizer.json")
    if (imported.end_of_text, imported.stop_ids) != (before, tuple(dict.fromkeys([before, *after]))):
        template = _template(_control_tokens(imported), [before], after)
        imported = Tokenizer.from_json(_with_template(library.to_str(), template).to_str())
    return imported


def _begin_and_ends(tokenizer: Tokenizer, settings: Mapping[str, dict[str, Any]]) -> tuple[int, list[int]]:
    """The id before a text, and those that end one, from any of the files.

    The template comes first: it shows what the model has really seen before a text.
    """
    id_of = {name: id_ for id_, name in _control_tokens(tokenizer).items()}

    def named(kind: str) -> list[int]:
        ids_in_files: list[Any] = []
        for values in (settings.get("generation_config.json", {}), settings.get("config.json", {})):
            ids = values.get(f"{kind}_token_id")
            ids_in_files += ids if isinstance(ids, list) else [ids]
        token = settings.get("tokenizer_config.json", {}).get(f"{kind}_token")
        ids_in_files.append(id_of.get(str(token.get("content") if isinstance(token, dict) else token), -1))
        return list(dict.fromkeys(id_ for id_ in ids_in_files if type(id_) is int and id_ in tokenizer.control_ids))

    ends = named("eos")
    before, _ = template_ids(json.loads(tokenizer.to_json())["post_processor"])
    return [*before, *named("bos"), *ends, tokenizer.end_of_text][0], ends


def _control_tokens(tokenizer: Tokenizer) -> dict[int, str]:
    added = json.loads(tokenizer.to_json())["added_tokens"]
    return {token["id"]: token["content"] for token in added if token["special"]}


def _template(names: Mapping[int, str], before: Iterable[int], after: Iterable[int]) -> dict[str, Any]:
    """The library's post-processor that puts control tokens around a text, as JSON."""

    def tokens(ids: Iterable[int]) -> list[dict[str, Any]]:
        return [{"SpecialToken": {"id": names[id_], "type_id": 0}} for id_ in ids]

    one = [*tokens(before), {"Sequence": {"id": "A", "type_id": 0}}, *tokens(after)]
    two = [*one, {"Sequence": {"id": "B", "type_id": 0}}]
    used = {names[id_]: {"id": names[id_], "ids": [id_], "tokens": [names[id_]]} for id_ in [*before, *after]}
    return {"type": "TemplateProcessing", "single": one, "pair": two, "special_tokens": used}


def _with_template(tokenizer_json: str, template: dict[str, Any] | None) -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_str(json.dumps({**json.loads(tokenizer_json), "post_processor": template}))
