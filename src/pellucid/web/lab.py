"""A page that trains: `pellucid lab page.html` writes one file in which a browser trains a small decoder.

The page has no grammar. All that it knows of a language is computed here once: documents as token ids, and for the
held-out ones the exact probability of every token, so that the floor is known before the first step.
"""

import base64
import gzip
import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pellucid.config.languages import GrammarConfig
from pellucid.config.load import load_run_config
from pellucid.config.model import DecoderConfig
from pellucid.corpora.build import build_corpus
from pellucid.corpora.drawn import Drawn
from pellucid.data.prepare import fingerprint_of
from pellucid.data.truth import nats_of, next_token_distributions, skill_characters
from pellucid.errors import ConfigError
from pellucid.files import write_whole
from pellucid.tokenizer import Tokenizer
from pellucid.tokenizer.build import tokenizer_settings, train_tokenizer
from pellucid.web.export import data_url, module

Json = dict[str, Any]

LAB, STATIC = Path(__file__).parent / "lab", Path(__file__).parent / "static"
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' 'wasm-unsafe-eval' data: blob:; worker-src blob:; "
    "style-src 'unsafe-inline'; img-src data:"
)
WORKER_MODULES = ("jax.js", "decoder.js", "training.js", "worker.js")  # each imports only those before it
PAGE_MODULES = (STATIC / "elements.js", LAB / "files.js", LAB / "panels.js", LAB / "lab.js")
N_SHOWN = 6  # held-out documents in which the page compares the model with the truth


class Told(NamedTuple):
    """A language as the page presents it. changes: to its config, so that two cores learn it while one watches."""

    config: str
    title: str
    says: str
    changes: Sequence[str]


RECIPE = ("train.steps=400", "train.batch_size=16", "train.precision=fp32")  # as a browser computes


def of_rules(rules: Path, says: str) -> Told:
    """The language of a file of rules, as docs/languages.md describes them."""
    changes = [f"corpus.file={json.dumps(str(rules))}", "corpus.size=6464", "corpus.validation_fraction=0.0099"]
    changes += ["model.embedding_std=0.2", "model.copying_init=true"]  # as where something is recalled
    return Told("languages/weather", rules.stem.capitalize(), says, changes)


SHIPPED = (
    Told(
        "languages/chains",
        "Chains",
        "Three letters, drawn by chance. In each text they follow one another with chances of their own, which nobody "
        "tells the reader. Whoever counts while reading guesses best.",
        ["corpus.length=39", "corpus.size=6464", "corpus.validation_fraction=0.0099"],
    ),
    Told(
        "languages/lookup",
        "Lookup",
        "Four pairs of a key and a value are told, then the text asks for them. Whoever looks back finds every answer; "
        "the pairs themselves are chance.",
        [
            "corpus.pairs=4",
            "corpus.queries=8",
            "corpus.size=12864",
            "corpus.validation_fraction=0.005",
            "train.batch_size=32",
        ],
    ),
    Told(
        "languages/hops",
        "Hops",
        "Arrows lead from name to name, and each question asks where one or two arrows lead. For two, one look back is "
        "not enough: try it with one layer.",
        [
            "corpus.names=3",
            "corpus.queries=8",
            "corpus.size=9664",
            "corpus.validation_fraction=0.00663",
            "optimizer.lr=0.02",
            "optimizer.adamw_lr=0.02",
            "train.steps=600",
        ],
    ),
    of_rules(
        LAB / "fables.rules",
        "Very small stories about three animals. Names and things come back, so a reader must remember; and each "
        "moral follows from a deed.",
    ),
)
# What decoder.js computes; all else of a model may be chosen.
DECODER = DecoderConfig(context_length=1, d_model=4, n_layers=1, n_heads=1, activation="relu_squared", qk_norm=True)
CHOSEN = {"context_length", "d_model", "n_layers", "n_heads", "embedding_std", "copying_init", "zero_init_projections"}


def write_lab(file: Path, rules: Path | None = None) -> None:
    """Write the page, with the shipped languages or the one of these rules. ConfigError where a language is unknown."""
    told = SHIPPED if rules is None else [of_rules(rules, f"Texts that follow the rules of {rules.name}.")]
    write_whole(file, page([language_of(each) for each in told]))


def language_of(told: Told) -> Json:
    """All that the page knows of a language: its recipe, documents as ids, and the truth about the held-out ones."""
    config = load_run_config(Path(told.config), [*RECIPE, *told.changes])
    corpus = build_corpus(config.corpus, Path())
    if not isinstance(corpus, Drawn):
        raise ConfigError("corpus.type", "the page needs texts whose probability is known", "take a language")
    if config.model.model_dump(exclude=CHOSEN) != DECODER.model_dump(exclude=CHOSEN):
        what = "the page trains decoders of one kind: RoPE, LayerNorm, relu_squared, norms of queries and keys"
        raise ConfigError("model", what, "leave out what it has besides")
    train, held_out = list(corpus.documents("train")), list(corpus.documents("validation"))
    tokenizer = train_tokenizer(config.tokenizer, train, held_out)
    ids = {"train": ids_of(tokenizer, train), "held_out": ids_of(tokenizer, held_out)}
    longest = max(len(document) for documents in ids.values() for document in documents)
    n_tokens = 1 + -(-(longest - 1) // 4) * 4  # a browser computes with four numbers at once, or else with one
    model = config.model.model_copy(update={"context_length": n_tokens - 1})
    name = "my_" + re.sub("[^a-z0-9]+", "_", told.title.lower())
    rules, of_corpus = None, config.corpus
    if isinstance(of_corpus, GrammarConfig):  # the run that is downloaded has the file of rules inside
        rules = Path(of_corpus.file).read_text(encoding="utf-8")
        of_corpus = of_corpus.model_copy(update={"file": f"{name}/{name}.rules"})
    config = config.model_copy(update={"name": name, "model": model, "corpus": of_corpus})
    true_nats = [nats_of(corpus.language, tokenizer, text) for text in held_out]
    skills = [skill_characters(corpus.language, tokenizer, text).argmax(axis=1).tolist() for text in held_out]
    guessing, flat = loss_by_frequency(ids["train"], ids["held_out"]), np.concatenate(skills)
    of_skill = [guessing[flat == i] for i in range(len(corpus.language.skills))]
    by_skill = [float(nats.mean()) if len(nats) else None for nats in of_skill]
    used = sorted({id_ for documents in ids.values() for document in documents for id_ in document})
    return {
        "rules": rules,
        "title": told.title,
        "says": told.says,
        "config": config.model_dump(mode="json"),
        "tokenizer": tokenizer.to_json(),
        "vocab_size": tokenizer.vocab_size,
        "end_of_text": tokenizer.end_of_text,
        "symbols": {id_: tokenizer.decode([id_]) for id_ in used},
        "skills": list(corpus.language.skills),
        "floor": sum(map(math.fsum, true_nats)) / sum(map(len, true_nats)),
        "by_frequency": float(guessing.mean()),
        "skills_by_frequency": by_skill,
        "fingerprint": fingerprint_of(corpus.identity, tokenizer_settings(config.tokenizer, for_chat=False)),
        "train": rows(ids["train"], n_tokens),
        "held_out": {
            **rows(ids["held_out"], n_tokens),
            "nats": filled(true_nats, n_tokens - 1, np.float32),
            "skill_of": filled(skills, n_tokens - 1, np.uint8),
        },
        "truth": [
            [dict(p) for p in next_token_distributions(corpus.language, tokenizer, text)] for text in held_out[:N_SHOWN]
        ],
    }


def ids_of(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    """Each document between the token that begins it and the one that ends it, which are the same."""
    return [[tokenizer.end_of_text, *tokenizer.encode(text), tokenizer.end_of_text] for text in texts]


def loss_by_frequency(train: list[list[int]], held_out: list[list[int]]) -> NDArray[np.float64]:
    """Nats of each held-out token for a reader who knows only how often each occurs."""
    counts = np.bincount([id_ for document in train for id_ in document[1:]])
    tokens = np.array([id_ for document in held_out for id_ in document[1:]])
    return np.asarray(-np.log(counts[tokens] / counts.sum()))


def rows(documents: list[list[int]], length: int) -> Json:
    """Documents as one array of ids, each filled up with zeros, and their lengths."""
    lengths = base64.b64encode(np.array([len(document) for document in documents], "<u2").tobytes()).decode()
    return {"length_of_row": length, "lengths": lengths, "ids": filled(documents, length, np.uint16)}


def filled(values: Sequence[Sequence[float]], length: int, dtype: type) -> str:
    """Rows of numbers, filled up with zeros, in base64."""
    array: NDArray[Any] = np.zeros((len(values), length), dtype)
    for row, numbers in zip(array, values, strict=True):
        row[: len(numbers)] = numbers
    return base64.b64encode(array.tobytes()).decode()


def page(languages: Sequence[Json]) -> str:
    """The page with its style, its modules and its languages inside, so that it loads nothing."""
    imports = {f"pellucid/{path.name}": module(path) for path in PAGE_MODULES}
    data = {"languages": languages, "worker": "".join(linked(LAB / name) for name in WORKER_MODULES)}
    compressed = gzip.compress(json.dumps(data, allow_nan=False).encode(), mtime=0)
    style = "".join(path.read_text(encoding="utf-8") for path in (STATIC / "style.css", LAB / "lab.css"))
    html = (LAB / "lab.html").read_text(encoding="utf-8")
    for old, new in {
        "<!-- policy -->": f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
        "<!-- icon -->": f'<link rel="icon" href="{data_url("image/svg+xml", (STATIC / "icon.svg").read_bytes())}">',
        "<!-- style -->": f"<style>\n{style}</style>",
        "<!-- code -->": "\n".join(
            [
                f'<script type="importmap">{json.dumps({"imports": imports})}</script>',
                f'<script type="text/plain" id="data">{base64.b64encode(compressed).decode()}</script>',
                '<script type="module">import "pellucid/lab.js";</script>',
            ]
        ),
    }.items():
        assert html.count(old) == 1, old
        html = html.replace(old, new)
    return html


def linked(path: Path) -> str:
    """A module as part of one script: a page opened from a disk may not give modules to its worker."""
    code = path.read_text(encoding="utf-8")
    exported = {name: name for name in re.findall(r"^export (?:async )?(?:function|const) (\w+)", code, re.MULTILINE)}
    if listed := re.search(r"export\s*{([^}]*)};?\s*\Z", code):  # as a bundler writes it: `a as b`
        exported |= {each.split(" as ")[-1].strip(): each.split(" as ")[0].strip() for each in listed[1].split(",")}
        code = code[: listed.start()]
    code = re.sub(r"^export ", "", code, flags=re.MULTILINE)
    code = re.sub(
        r'^import {([^}]*)} from "\./(\w+)\.js";',
        lambda match: f"const {{{match[1].replace(' as ', ': ')}}} = {match[2]}_js;",
        code,
        flags=re.MULTILINE,
    )
    names = ", ".join(f"{outside}: {inside}" for outside, inside in exported.items())
    return f"const {path.stem}_js = (() => {{\n{code}\nreturn {{{names}}};\n}})();\n"
