"""The Model Microscope as one file, which opens without a server: `pellucid serve RUN --export page.html`.

It is the same page with another source (`static/source_offline.js`). For every checkpoint the file has the server's
answers for one text; for the latest also the weights, so that the browser runs it on any text (`static/model.js`).

Shapes: N points of the residual stream, T positions, V vocabulary, C = N * T cells.
"""

import base64
import gzip
import json
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from torch import Tensor

from pellucid.checkpoint.run_directory import find_step_directory
from pellucid.config.gaps import require_next_tokens
from pellucid.config.model import DecoderConfig
from pellucid.errors import ConfigError, DataError
from pellucid.files import write_whole
from pellucid.generation.single_token import own_part
from pellucid.model.decoder import Decoder
from pellucid.web.descriptions import Json
from pellucid.web.microscope import Microscope
from pellucid.web.news import news_of_all
from pellucid.web.runs import Opened
from pellucid.web.schemas import N_FABLES
from pellucid.web.stops import NONE
from pellucid.web.tensors import packed
from pellucid.web.tours import Tours, files_of

STATIC = Path(__file__).parent / "static"
POLICY = "default-src 'none'; script-src 'unsafe-inline' data:; style-src 'unsafe-inline'; img-src data:"
N_DOCUMENTS = 20  # held-out ones to choose from
LEAST_PROBABILITY = 1e-3  # of a token whose logit is recorded
N_LIKELIEST = 10  # always recorded: as many as a cell of the logit lens lists


def export_page(runs: Sequence[Path], file: Path, prompt: str | None = None, tour: Path | None = None) -> str | None:
    """Write the page of the runs, with this text or an example; returns why no model can run in a browser, or None.

    tour: a file, or the name of a shipped one. CheckpointError for a run without a checkpoint, ConfigError for one that
    fills gaps and where there is no text to record, and the errors of `Microscope` and `Tours`.
    """
    for run in runs:
        find_step_directory(run, "latest")
    microscope = Microscope(runs)
    for config in microscope.runs.configs().values():
        require_next_tokens(config)
    tours = Tours(microscope, files_of(tour))
    played = [] if tour is None else [tours.played(tour.stem)]
    recorded = record(microscope, prompt, played)
    write_whole(file, page(recorded))
    opened, _ = microscope.traced(recorded["latest"], recorded["text"])
    return unsupported_part(opened)


def record(microscope: Microscope, prompt: str | None, tours: Sequence[Json] = ()) -> Json:
    """All data for `source_offline.js`. What is of a run stands under its name, and the first run's model is live."""
    runs = microscope.runs
    described = runs.described()["runs"]
    checkpoints = {run["name"]: [checkpoint["id"] for checkpoint in run["checkpoints"]] for run in described}
    last = {name: ids[-1] for name, ids in checkpoints.items()}
    first = described[0]["name"]
    latest = last[first]
    examples = {name: runs.examples(checkpoint) for name, checkpoint in last.items()}
    text = microscope.trace(latest, first_text(examples[first]) if prompt is None else prompt)["text"]
    examples[first] = [{"skill": None, "text": text}] * (prompt is not None) + examples[first]
    shown = [state for tour in tours for stop in tour["stops"] for state in (stop["show"], stop["then"])]
    texts = dict.fromkeys([text, *(state["text"] for state in shown)])
    truths = {each: microscope.truth(latest, each) for each in [*(one["text"] for one in examples[first]), *texts]}
    browser = browser_model(microscope, latest, text)
    wanted = {(checkpoint, text): None for ids in checkpoints.values() for checkpoint in ids}
    wanted |= {
        (state[side], state["text"]): None for state in shown for side in ("checkpoint", "other") if state[side] != NONE
    }
    answered: dict[str, Json] = {}
    for checkpoint, each in wanted:
        if checkpoint != latest or browser is None:
            answered.setdefault(checkpoint, {})[each] = answers(microscope, checkpoint, each, truths[each])
    return {
        "run": {"runs": described},
        "news": {name: {**news, "is_training": False} for name, news in news_of_all(runs.folders, {}).items()},
        "model": {name: microscope.model(checkpoint) for name, checkpoint in last.items()},
        "examples": examples,
        "documents": {name: runs.held_out(checkpoint, N_DOCUMENTS) for name, checkpoint in last.items()},
        "latest": latest,
        "text": text,
        "truths": truths,
        "deciding": {each: microscope.deciding(latest, each) for each in truths},
        "beliefs": {each: microscope.beliefs(latest, each) for each in truths},
        "heads": {each: or_none(microscope.heads, each) for ids in checkpoints.values() for each in ids},
        "knock_out": or_none(microscope.knock_out, latest, N_FABLES),
        "browser": browser,
        "answers": answered,
        "tours": tours,
    }


def or_none(measure: Callable[..., Json], *arguments: object) -> Json | None:
    """The result of `measure`; None where it is not possible, as without a grammar."""
    try:
        return measure(*arguments)
    except (ConfigError, DataError):
        return None


def first_text(examples: Sequence[Json]) -> str:
    """The first example, where several tokens may come."""
    if not examples:
        raise ConfigError("--export", "the run's corpus is not here to take an example from", "give --prompt TEXT")
    return str(examples[0]["text"])


def answers(microscope: Microscope, checkpoint: str, text: str, truth: Json) -> Json:
    """The answers for a text of a checkpoint that does not run in the browser."""
    trace = microscope.trace(checkpoint, text)
    del trace["logits"], trace["at"]  # replaced by those of all positions
    _, traced = microscope.traced(checkpoint, text)
    layers = range(len(traced.attention))
    true_ids = [p["ids"] if p else [] for p in truth["positions"]] if truth["known"] else []
    return {
        "trace": trace,
        "logits": likely_logits(traced.logits, true_ids),
        "inside": [microscope.inside(checkpoint, text, layer, dtype="float16") for layer in layers],
    }


def likely_logits(logits_NTV: Tensor, true_ids: Sequence[Sequence[int]]) -> Json:
    """The logits of the likely and of the true tokens in each cell, to save space in the file.

    All others get one common logit, `rest`, which preserves their total probability.
    """
    is_kept_NTV = logits_NTV.softmax(-1) >= LEAST_PROBABILITY
    is_kept_NTV.scatter_(-1, logits_NTV.topk(min(N_LIKELIEST, logits_NTV.size(-1))).indices, True)
    for t, ids in enumerate(true_ids):
        is_kept_NTV[:, t, [id_ for id_ in ids if id_ >= 0]] = True
    n_others_NT = (~is_kept_NTV).sum(-1).clamp(min=1)
    rest_NT = logits_NTV.masked_fill(is_kept_NTV, -math.inf).logsumexp(-1) - n_others_NT.log()
    return {
        "counts": packed(is_kept_NTV.sum(-1), "int32"),
        "ids": packed(is_kept_NTV.flatten(0, 1).nonzero()[:, 1], "int32"),
        "values": packed(logits_NTV[is_kept_NTV]),
        "rest": packed(rest_NT),
    }


def browser_model(microscope: Microscope, checkpoint: str, text: str) -> Json | None:
    """The data with which `model.js` runs a checkpoint; None for a model that it does not support."""
    opened, traced = microscope.traced(checkpoint, text)
    if unsupported_part(opened):
        return None
    layers = range(len(traced.attention))
    return {
        "config": opened.trained.config.model.model_dump(mode="json"),
        "weights": {name: packed(weight, "float16") for name, weight in opened.model.named_parameters()},
        "tokenizer": json.loads(opened.tokenizer.to_json()),
        "steps": [[{**step._asdict(), "values": None} for step in traced.inside(layer)] for layer in layers],
    }


def unsupported_part(opened: Opened) -> str | None:
    """The part of a model or its tokenizer that `model.js` does not support; None if there is none."""
    config = opened.trained.config.model
    if not isinstance(config, DecoderConfig) or not isinstance(opened.model, Decoder):
        return f"a model of type {config.type}"
    if own := own_part(opened.model):
        return own
    if not config.attends_by_softmax:
        return f"{getattr(config.attention, 'type', config.attention)} attention"
    if config.experts:
        return "a mixture of experts"
    if not opened.tokenizer.has_words:
        return "a tokenizer that does not cut text as GPT-2's does"
    return None


def page(recorded: Json) -> str:
    """The page with its style, its modules and the recorded data inside, so that it loads nothing."""
    html = (STATIC / "index.html").read_text(encoding="utf-8")
    style = (STATIC / "style.css").read_text(encoding="utf-8")
    icon = data_url("image/svg+xml", (STATIC / "icon.svg").read_bytes())
    imports = {f"pellucid/{path.name}": module(path) for path in sorted(STATIC.glob("*.js")) if path.name != "start.js"}
    compressed = gzip.compress(json.dumps(recorded, allow_nan=False).encode(), mtime=0)
    scripts = [
        f'<script type="importmap">{json.dumps({"imports": imports})}</script>',
        f'<script type="text/plain" id="recorded">{base64.b64encode(compressed).decode()}</script>',
        '<script type="module">import "pellucid/start_offline.js";</script>',
    ]
    for old, new in {
        '<meta charset="utf-8">': '<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
        'href="static/icon.svg"': f'href="{icon}"',
        '<link rel="stylesheet" href="static/style.css">': f"<style>\n{style}</style>",
        '<script type="module" src="static/start.js"></script>\n': "",
        "</body>": "\n".join([*scripts, "</body>"]),
    }.items():
        assert html.count(old) == 1, old
        html = html.replace(old, new)
    return html


def module(path: Path) -> str:
    """A module as a data URL. It imports others by an import map, as it has no path."""
    code = re.sub(r'"\./(\w+\.js)"', r'"pellucid/\1"', path.read_text(encoding="utf-8"))
    return data_url("text/javascript", code.encode())


def data_url(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"
