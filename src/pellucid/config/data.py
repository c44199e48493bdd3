"""Knobs of the data: corpus, tokenizer, and packing of tokens into rows (`corpora/`, `tokenizer/`, `data/`)."""

import re
from collections.abc import Iterable
from pathlib import PurePath
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from pellucid.config.base import Rule, Section, list_of_one
from pellucid.config.languages import FablesConfig, Fraction, GrammarConfig, InstructionsConfig, LanguageOfSymbolsConfig

# YAML gives lists, a frozen config holds tuples: the only conversion that we allow.
Strings = Annotated[tuple[str, ...], Field(strict=False)]
Files = Annotated[Strings, BeforeValidator(list_of_one, json_schema_input_type=str | Strings)]
FORMATS = ("json", "text", "parquet", "csv")
# Otherwise the hub would be searched for a data set of that name, which takes half a minute.
FORMAT_OF_SUFFIX = {".jsonl": "json", ".json": "json", ".parquet": "parquet", ".csv": "csv", ".tsv": "csv"}
MISNAMED_FORMATS = {"jsonl": "json", "jsonlines": "json", "ndjson": "json"}
MISNAMED_FORMATS |= {"txt": "text", "pq": "parquet", "tsv": "csv"}
SUFFIXES_OF_LISTS = (".jsonl", ".json", ".parquet")  # no cell of CSV is a list
MOST_IDS = 1 << 20  # more than any vocabulary in use


def rule_of_formats(files: Iterable[str], suffixes: Iterable[str]) -> Rule:
    """The names of the files say their format, by one of the suffixes, and it is the same for all."""
    endings = [PurePath(file).suffix for file in files]
    wrong = f"they end in none of {', '.join(suffixes)}, or not all alike"
    is_mixed = not {*endings} <= {*suffixes} or len({FORMAT_OF_SUFFIX[ending] for ending in endings}) > 1
    return is_mixed, "files", wrong, "convert them, or rename them"


class DownloadConfig(Section):
    """A text file of the web, fetched once."""

    url: str = Field(description="address of the file, http or https")
    sha256: str = Field(description="its SHA-256 in hexadecimal: no other file is accepted")

    def _rules(self) -> Iterable[Rule]:
        is_address, is_hash = re.fullmatch(r"https?://\S+", self.url), re.fullmatch("[0-9a-f]{64}", self.sha256)
        yield not is_address, "url", f"{self.url!r} is not a web address", "write https://..."
        yield not is_hash, "sha256", "this is no SHA-256", "give the 64 digits that `sha256sum FILE` prints"


class TextFilesConfig(Section):
    """UTF-8 text files, your own or one of the web."""

    type: Literal["text"]
    files: Files = Field((), description="paths or globs, seen from the current folder, read in order")
    download: DownloadConfig | None = Field(None, description="the file to train on where no `files` are given")
    separator: str | None = Field(None, min_length=1, description="text between two documents; null: one per file")
    validation_files: Files = Field((), description="files held out; empty: the end of `files` is held out")
    validation_fraction: Fraction = Field(0.1, description="share at the end of `files` that is held out")

    def _rules(self) -> Iterable[Rule]:
        fix = "give `files: [FILE]`, or `download: {url: ..., sha256: ...}`"
        yield not self.files and self.download is None, "files", "no text is named", fix


class HuggingFaceConfig(Section):
    """A data set read by `datasets.load_dataset`."""

    type: Literal["hugging_face"]
    path: str = Field(min_length=1, description="data set on the hub, or a format: json, text, parquet, csv")
    name: str | None = Field(None, description="configuration of the data set")
    split: str = Field("train", description="split to train on; slices such as `train[:10%]` work")
    validation_split: str | None = Field(None, description="split to validate on; null: every n-th document")
    validation_fraction: Fraction = Field(0.1, description="share of the documents held out without such a split")
    text_field: str = Field("text", description="column that holds the text")
    field: str | None = Field(None, description="key of a JSON file whose value is the list of rows; null: none")
    data_files: str | Strings | dict[str, str | Strings] | None = Field(
        None, description="local files for the formats json, text, parquet, csv; a map names a file per split"
    )
    streaming: bool = Field(False, description="read on the fly instead of downloading first")

    def _rules(self) -> Iterable[Rule]:
        meant, lacks_files = MISNAMED_FORMATS.get(self.path), self.path in FORMATS and self.data_files is None
        yield meant, "path", f"{self.path!r} is no format", f"did you mean {meant!r}?"
        yield lacks_files, "data_files", f"{self.path} is a format, and no files are named", "add `data_files: FILE`"
        yield self.field is not None and self.path != "json", "field", "only JSON files have such keys", "leave it out"


class PreferencesConfig(Section):
    """Pairs of answers to the same prompt, of which one was preferred to the other; or rankings of several answers."""

    type: Literal["preferences"]
    files: Files = Field(
        min_length=1, description="JSON lines or Parquet, as paths or globs, with columns prompt, chosen and rejected"
    )
    validation_fraction: Fraction = Field(0.1, description="share of the pairs held out")
    answers: int = Field(
        2,
        ge=2,
        description="answers to each prompt; of 3 or more, column `ranked` is the list, from best to worst",
    )


class ConversationsConfig(Section):
    """Conversations from files or from the hub: a record is a list `messages`, or has a question and its answer."""

    type: Literal["conversations"]
    files: Files = Field((), description="paths or globs of JSON lines, JSON, Parquet, CSV or TSV")
    validation_files: Files = Field((), description="files held out; empty: every n-th record of `files` is")
    path: str | None = Field(None, min_length=1, description="instead of `files`: a data set on the hub")
    name: str | None = Field(None, description="configuration of that data set")
    split: str = Field("train", description="its split to train on")
    validation_split: str | None = Field(None, description="its split to validate on; null: every n-th record")
    data_files: str | Strings | dict[str, str | Strings] | None = Field(
        None, description="its files to read; null: all"
    )
    validation_fraction: Fraction = Field(0.1, description="share of the records held out where nothing else is named")
    prompt_field: str = Field("prompt", description="column that holds the question, where there are no `messages`")
    answer_field: str = Field("answer", description="column that holds its answer")

    def _rules(self) -> Iterable[Rule]:
        fix = "`files: [FILE]`, or `path: NAME` of the hub"
        yield bool(self.files) == bool(self.path), "files path", "give either files or path", fix
        only_held_out = self.validation_files and not self.files
        yield only_held_out, "validation_files files", "they go with files alone", "use validation_split"
        for key in ("name", "validation_split", "data_files"):
            has_both = self.files and getattr(self, key) is not None
            yield has_both, f"{key} path", "it goes with path alone", "leave it out, or use validation_files"
        yield rule_of_formats([*self.files, *self.validation_files], FORMAT_OF_SUFFIX)


class TokensConfig(Section):
    """Documents of ids that are no text, such as the notes of melodies or the moves of games."""

    type: Literal["tokens"]
    files: Files = Field(min_length=1, description="paths or globs of JSON lines, JSON or Parquet: documents in rows")
    validation_files: Files = Field((), description="files held out; empty: every n-th document of `files` is")
    validation_fraction: Fraction = Field(0.1, description="share of the documents held out without such files")
    ids_field: str = Field("ids", description="column that holds the list of ids; a row may also be that list alone")

    def _rules(self) -> Iterable[Rule]:
        yield rule_of_formats([*self.files, *self.validation_files], SUFFIXES_OF_LISTS)


class NoCorpusConfig(Section):
    """No text: the model was imported, and what it was trained on is not here."""

    type: Literal["none"]


CorpusConfig = Annotated[
    FablesConfig
    | InstructionsConfig
    | GrammarConfig
    | LanguageOfSymbolsConfig
    | TextFilesConfig
    | HuggingFaceConfig
    | ConversationsConfig
    | PreferencesConfig
    | TokensConfig
    | NoCorpusConfig,
    Field(discriminator="type"),
]


# Corpora whose text is in files or on the web, and may be missing where the run is; the others write their own.
READ_FROM_FILES = ("text", "hugging_face", "conversations", "preferences", "tokens")
# Corpora of conversations, of which only the answers are learned.
CONVERSATIONS = ("instructions", "conversations", "preferences")


class SpecialTokensSection(Section):
    special_tokens: Strings = Field(
        ("<|endoftext|>",),
        min_length=1,
        description="control tokens; the first one ends a document. Text that spells one stays plain text",
    )

    def _rules(self) -> Iterable[Rule]:
        tokens = self.special_tokens
        is_repeated = len(set(tokens)) < len(tokens) or "" in tokens
        yield is_repeated, "special_tokens", "a token is empty or appears twice", "name each token once"


class BytePairConfig(SpecialTokensSection):
    """Byte-level byte-pair encoding trained on the corpus (Sennrich et al. 2016)."""

    type: Literal["bpe"]
    vocab_size: int = Field(4096, ge=257, description="256 bytes, the special tokens, and the learned merges")
    training_megabytes: int = Field(32, ge=1, description="the most of the corpus that merges are learned from")

    def _rules(self) -> Iterable[Rule]:
        yield from super()._rules()
        least = 256 + len(self.special_tokens)
        wrong = f"{self.vocab_size} has no room for 256 bytes and {len(self.special_tokens)} special tokens"
        yield self.vocab_size < least, "vocab_size special_tokens", wrong, f"give at least {least}"


class CharacterConfig(SpecialTokensSection):
    """One token per character that the corpus contains."""

    type: Literal["char"]


class IdsConfig(SpecialTokensSection):
    """The ids of a corpus of tokens as they are. The special tokens get the ids after them."""

    type: Literal["ids"]
    n_ids: int | None = Field(
        None, ge=1, le=MOST_IDS, description="ids are 0 to n_ids - 1; null: up to the largest in the corpus"
    )


class FileTokenizerConfig(Section):
    """A tokenizer that exists already: of another run, or of a model from elsewhere."""

    type: Literal["file"]
    path: str = Field(min_length=1, description="a tokenizer.json, seen from the current folder")


TokenizerConfig = Annotated[
    BytePairConfig | CharacterConfig | IdsConfig | FileTokenizerConfig, Field(discriminator="type")
]


class DataConfig(Section):
    """Packing of tokens into rows of `context_length` tokens."""

    packing: Literal["contiguous", "documents"] = Field(
        "contiguous",
        description="contiguous: equal windows of one long stream; documents: each row starts at a document, others "
        "that fit follow, and rows of like length make a batch",
    )
    documents_see_each_other: bool = Field(
        True,
        description="with packing documents: a token attends to all before it in its row; false: in its document "
        "alone, whose positions count from its start",
    )
