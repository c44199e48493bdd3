"""Wrong configs made from the schema itself, so that a new key is covered from the day it is there.

A base is a complete valid config; together the bases have every variant of every section. A case changes one thing of a
base, and knows which key path an error must name.
"""

from __future__ import annotations

import copy
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import yaml

from pellucid.config.load import parse_run_config
from pellucid.config.run import LEARNS_FROM_PAIRS, NEEDS_DECODER, RunConfig

DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # many times faster, where PyYAML was built with it
SCHEMA = RunConfig.model_json_schema()
SCHEMA["required"].append("model")  # none of these runs starts from another
Path = tuple[str, ...]
Data = dict[str, Any]

# What a key that must be there gets in a base.
REQUIRED: dict[str, object] = {
    "name": "base",
    "file": "my.rules",
    "url": "https://example.org/corpus.txt",
    "sha256": "0" * 64,
    "path": "owner/stories",
    "run": "checkpoints/reward_model",
    "teacher": "checkpoints/fables",
    "files": ["pairs.jsonl"],
    "context_length": 8,
    "factor": 2.0,
    "trained_length": 8,
    "d_model": 16,
    "n_layers": 1,
    "n_heads": 2,
    "steps": 100,
    "batch_size": 2,
    "window": 4,
    "n_experts": 4,
    "top_k": 2,
}
# What can be learned from conversations; from all other text, the next token.
OBJECTIVES = {
    "instructions": ("sft", *NEEDS_DECODER),
    "conversations": ("sft",),
    "preferences": LEARNS_FROM_PAIRS,
}
WRONG_TYPES: dict[str, list[object]] = {
    "integer": ["many", 1.5, True, [1], {"a": 1}],
    "number": ["many", "1.5", True, [0.5], float("nan"), float("inf")],
    "string": [5, True, ["a"]],
    "boolean": [1, "yes", []],
    "array": [5, "text", {"a": 1}],
    "object": [5, "text", [1]],
}


@dataclass(frozen=True)
class Case:
    """A config that is wrong at `path`, by something done to a key of the schema. `says` stands in the error."""

    key: tuple[str, str]
    what: str
    path: Path
    data: Data
    says: str = ""

    @cached_property
    def text(self) -> str:
        return dump(self.data)

    @property
    def line(self) -> int:
        """Where the key stands, from 1; for a key that is not there, where its section begins."""
        return line_of(self.text, self.path) or line_of(self.text, self.path[:-1]) or 1


def resolved(schema: Data) -> Data:
    """The schema that a reference stands for; of `X or null`, X."""
    while True:
        if "$ref" in schema:
            schema = SCHEMA["$defs"][schema["$ref"].rsplit("/", 1)[-1]]
        elif "anyOf" in schema and sum(option != {"type": "null"} for option in schema["anyOf"]) == 1:
            schema = next(option for option in schema["anyOf"] if option != {"type": "null"})
        else:
            return schema


def variants(schema: Data) -> dict[str, Data]:
    """The variants of a discriminated union by the value of their `type`."""
    mapping = resolved(schema).get("discriminator", {}).get("mapping", {})
    return {name: resolved({"$ref": reference}) for name, reference in mapping.items()}


def section_beside_words(schema: Data) -> Data | None:
    """Of `a word or a section`, the section."""
    options = [resolved(option) for option in schema.get("anyOf", ())]
    sections = [option for option in options if "properties" in option]
    return sections[0] if sections and len(options) > 1 and not variants(schema) else None


def base(section: Data, choice: int) -> Data:
    """All keys of a section: its defaults, or what stands in REQUIRED. `choice` counts through variants."""
    data = {}
    for key, schema in section["properties"].items():
        options = list(variants(schema).values())
        schema = options[choice % len(options)] if options else resolved(schema)
        if key == "type":
            data[key] = schema["const"] if "const" in schema else schema["enum"][0]
        elif "properties" in schema:
            data[key] = base(schema, choice // max(1, len(options)))
        elif choice % 2 and (beside := section_beside_words(schema)):
            data[key] = base(beside, choice)
        else:
            data[key] = REQUIRED[key] if key in section.get("required", ()) else section["properties"][key]["default"]
    return data


@functools.cache
def bases() -> list[Data]:
    """As many as it takes for each model to come with each of its parts and each objective; and each corpus."""
    parts = [*SCHEMA["$defs"]["DecoderConfig"]["properties"].values(), SCHEMA["properties"]["objective"]]
    n_parts, n_models = max(len(variants(part)) for part in parts), len(variants(SCHEMA["properties"]["model"]))
    complete = [made_to_fit(base(SCHEMA, choice), choice, choice // n_models) for choice in range(n_parts * n_models)]
    plain = next(data for data in complete if data["objective"]["type"] == "next_token")
    for name, corpus in variants(SCHEMA["properties"]["corpus"]).items():  # there are more of them than of models
        if name not in OBJECTIVES:
            complete += [with_a_tokenizer_for({**plain, "corpus": base(corpus, choice)}) for choice in (0, 1)]
    for data in complete:
        parse_run_config(dump(data), "base.yaml")
    return complete


def made_to_fit(data: Data, choice: int, part: int) -> Data:
    """The same with an objective for its model, and a corpus for its objective. Each starts from a run: adapters do."""
    objectives, corpora = (variants(SCHEMA["properties"][key]) for key in ("objective", "corpus"))
    kind = list(objectives)[part % len(objectives)]
    if kind in (*NEEDS_DECODER, "masked") and data["model"]["type"] != "decoder":
        kind = "sft"
    fitting = [name for name in corpora if kind in OBJECTIVES.get(name, ("next_token", "masked", "distill"))]
    corpus = fitting[choice % len(fitting)]
    files = {"files": ["chats.jsonl"]} if corpus == "conversations" else {}
    model = data["model"]
    if kind in (*NEEDS_DECODER, "masked", "distill") and model.get("feed_forward", {}).get("type") == "moe":
        model = {**model, "feed_forward": {**model["feed_forward"], "load_balance_weight": 0.0}}
    sections_that_fit = {
        "model": model,
        "objective": base(objectives[kind], part // 2),
        "corpus": {**base(corpora[corpus], choice), **files},
    }
    if kind == "masked":
        sections_that_fit["model"] = {
            **model,
            "attention": "explicit",
            "attention_soft_cap": None,
            "attention_mask": "none",
        }
        sections_that_fit["data"] = {"packing": "documents", "documents_see_each_other": False}
        special_tokens = {"special_tokens": ["<|endoftext|>", "<|mask|>"]}
        sections_that_fit["tokenizer"] = {
            **base(variants(SCHEMA["properties"]["tokenizer"])["bpe"], 0),
            **special_tokens,
        }
    return with_a_tokenizer_for({**data, **sections_that_fit, "start_from": "checkpoints/base"})


def with_a_tokenizer_for(data: Data) -> Data:
    """The same with the tokenizer of ids for a corpus of tokens, and with another for all others."""
    tokenizers, needs_ids = variants(SCHEMA["properties"]["tokenizer"]), data["corpus"]["type"] == "tokens"
    if needs_ids == (data["tokenizer"]["type"] == "ids"):
        return data
    return {**data, "tokenizer": base(tokenizers["ids" if needs_ids else "bpe"], 0)}


def sections(data: Data, section: Data, path: Path = ()) -> Iterator[tuple[Path, Data]]:
    """Every section of a config with its schema; of a union the variant that the config names."""
    yield path, section
    for key, schema in section["properties"].items():
        schema = variants(schema).get(data[key].get("type")) if variants(schema) else resolved(schema)
        if schema and isinstance(data[key], dict):
            schema = section_beside_words(schema) or schema
        if schema and "properties" in schema:
            yield from sections(data[key], schema, (*path, key))


def cases() -> Iterator[Case]:
    """Each key of each section misspelled, missing, of each wrong type, and beyond each bound; each type once."""
    seen: set[tuple[tuple[str, str], Path, str]] = set()
    for data in bases():
        for path, section in sections(data, SCHEMA):
            for key in section["properties"]:
                needed = {name: data[name] for name in data if name in {*SCHEMA["required"], *path[:1], key}}
                for case in cases_of_key(needed, (*path, key), section):
                    if (case.key, case.path, case.what) not in seen:
                        seen.add((case.key, case.path, case.what))
                        yield case


def cases_of_key(data: Data, path: Path, section: Data) -> Iterator[Case]:
    key, name = path[-1], (section["title"], path[-1])
    schema, misspelled = section["properties"][key], (*path[:-1], key + key[-1])
    if path == ("model", "type") and data["model"]["type"] != "decoder":
        return  # without it the section describes a decoder, and what is wrong there comes first
    says = f"unknown key; did you mean {key!r}?"
    yield Case(name, "misspelled", misspelled, renamed(data, path, misspelled[-1]), says)
    if key in section.get("required", ()):
        yield Case(name, "missing", path, without(data, path), "this key is missing; add")
    for value in wrong_values(schema):
        has_types = variants(schema) or section_beside_words(schema)
        at = (*path, "type") if has_types and isinstance(value, dict) else path
        if path == ("model",) and isinstance(value, dict) and "type" not in value:
            at = (*path, *value)  # a section without a type describes a decoder, which has no such key
        yield Case(name, repr(value), at, changed(data, path, value))
    for i, value in wrong_items(schema):
        items = list(section_of(data, path)[key] or ())
        yield Case(name, f"{value!r} at {i}", (*path, str(i)), changed(data, path, [*items[:i], value]))


def wrong_values(schema: Data) -> Iterator[object]:
    is_optional = {"type": "null"} in schema.get("anyOf", [])
    if not is_optional:
        yield None
    schema = resolved(schema)
    if "anyOf" in schema and any("const" in option for option in schema["anyOf"]):
        yield from ["many", 0, 1.5, True]  # a word, or a number of at least 1
        return
    if "anyOf" in schema:
        kinds = {resolved(option)["type"] for option in schema["anyOf"]}
        if kinds == {"string", "integer"}:  # `auto` or a number
            yield from ["nonsense", 1.5, 0, True, [1]]
        elif kinds == {"string", "object"}:  # a word, or a section
            yield from ["nonsense", 5, True, [1], {"type": "nonsense"}]
        elif kinds == {"boolean", "array"}:  # everywhere, nowhere, or at some places
            yield from ["nonsense", 5, 1.5]
        elif kinds == {"boolean", "string"}:  # a word; true and false stand for two of them
            yield from ["nonsense", 5, 1.5, [1]]
        else:
            assert {"string", "array"} <= kinds  # one of them, a list, or a map of them
            yield from [5, 1.5 if "boolean" in kinds else True]
        return
    if "const" in schema or "enum" in schema:
        yield from ["nonsense", 5, True]
    elif variants(schema):
        yield from [5, "text", [1], {"type": "nonsense"}, {"kind": "rope"}]
    else:
        kind = "object" if "properties" in schema else schema["type"]
        yield from WRONG_TYPES[kind]
    if "minimum" in schema:
        yield schema["minimum"] - 1
    if "maximum" in schema:
        yield schema["maximum"] + 1
    if "exclusiveMinimum" in schema:
        yield from [schema["exclusiveMinimum"], schema["exclusiveMinimum"] - 1]
    if "exclusiveMaximum" in schema:
        yield from [schema["exclusiveMaximum"], schema["exclusiveMaximum"] + 1]
    if schema.get("minLength"):
        yield ""
    if schema.get("minItems"):
        yield []
    if "maxItems" in schema:
        yield [0.5] * (schema["maxItems"] + 1)
    if "pattern" in schema:
        yield from ["../elsewhere", "a b", ".hidden", "a/b"]


def wrong_items(schema: Data) -> Iterator[tuple[int, object]]:
    """What may not stand in a list, and where in it."""
    schema = resolved(schema)
    items = schema.get("prefixItems", [schema["items"]] if "items" in schema else [])
    for i, item in enumerate(items):
        yield from ((i, value) for value in wrong_values(item))


def changed(data: Data, path: Path, value: object) -> Data:
    data = copy.deepcopy(data)
    section_of(data, path)[path[-1]] = value
    return data


def renamed(data: Data, path: Path, key: str) -> Data:
    data = copy.deepcopy(data)
    section = section_of(data, path)
    items = [(key if old == path[-1] else old, value) for old, value in section.items()]
    section.clear()
    section.update(items)
    return data


def without(data: Data, path: Path) -> Data:
    data = copy.deepcopy(data)
    del section_of(data, path)[path[-1]]
    return data


def section_of(data: Data, path: Path) -> Data:
    for key in path[:-1]:
        data = data[key]
    return data


def dotted(path: Path) -> str:
    return ".".join(path)


def dump(data: Data) -> str:
    """One key a line."""
    return str(yaml.dump(data, Dumper=DUMPER, sort_keys=False, default_flow_style=False))


def line_of(text: str, path: Path) -> int | None:
    """The line of a key, or of an item of a list, found by its indentation; None if it is not there."""
    stack: list[str] = []
    n_items = 0
    for number, line in enumerate(text.splitlines(), 1):
        depth = (len(line) - len(line.lstrip(" "))) // 2
        if match := re.match(r" *(\w+):", line):
            stack, n_items = [*stack[:depth], match[1]], 0
        elif re.match(r" *- ", line):
            stack, n_items = [*stack[: depth + 1], str(n_items)], n_items + 1
        if tuple(stack) == path:
            return number
    return None
