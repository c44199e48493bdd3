"""The README.md of an exported model: its shape, loss, how to load it, and its limits."""

import json
from collections.abc import Mapping
from pathlib import Path, PureWindowsPath
from typing import Any, NamedTuple

from pellucid.checkpoint.step_directory import State
from pellucid.config.base import flat
from pellucid.config.model import DecoderConfig
from pellucid.config.yaml_source import write_yaml
from pellucid.model.build import head_width
from pellucid.tokenizer.tokenizer import END_OF_TURN
from pellucid.trained import TrainedModel
from pellucid.training.metrics import read_rows
from pellucid.version import __version__

PATHS = {"files", "validation_files", "data_files", "path", "start_from"}  # keys of a run config
REWRITTEN = ("norm", "activation", "position", "head_width", "tied_embeddings")  # changed by `rewrites.py`

WRITES = "It continues text like that of its corpus. It follows no instructions"
TALKS = "It answers as in the conversations that it learned from"


class Exported(NamedTuple):
    """The exported model: its class or architecture, its decoder's config, and the number of weights."""

    name: str
    config: DecoderConfig
    n_parameters: int


class Loading(NamedTuple):
    """The library for the model hub to name, and how to load the model; `{begin}` is the token before a text."""

    library: str
    text: str


HUGGING_FACE = Loading(
    "transformers",
    """\
```python
from transformers import pipeline

write = pipeline("text-generation", model="DIR")
print(write("Once")[0]["generated_text"])
```

DIR is this folder. Nothing of Pellucid is needed, and no `trust_remote_code`. The tokenizer puts `{begin}` before a
text, because the model has never seen a text without it. Text that spells a control token stays plain text.
""",
)

HUGGING_FACE_CHAT = Loading(
    "transformers",
    """\
```python
from transformers import pipeline

write = pipeline("text-generation", model="DIR")
said = write([{"role": "user", "content": "Who are you?"}])[0]["generated_text"]
print(said[-1]["content"])
```

DIR is this folder. Nothing of Pellucid is needed, and no `trust_remote_code`. Here a text that spells a control token,
as `{end}`, becomes one: transformers writes the chat template as text. Take these out of what strangers say.
""",
)


def adapter_loading(base: str) -> Loading:
    """How to load an adapter beside the folder of its base."""
    return Loading(
        "peft",
        f"""\
```python
from peft import PeftModel
from transformers import AutoModelForCausalLM

model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained("{base}"), "DIR")
```

DIR is this folder. The adapter fits the weights of its base alone, which has the tokenizer, too.
""",
    )


def gguf_loading(arguments: Mapping[str, Any], *, has_experts: bool) -> Loading:
    """How to load a GGUF file. arguments: values that transformers does not read in the file."""
    if has_experts:
        says = "llama.cpp and the programs that are built on it read `model.gguf`; transformers does not.\n"
        return Loading("gguf", says)
    passed = "".join(f", {name}={value}" for name, value in arguments.items())
    return Loading(
        "gguf",
        f"""\
```python
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("DIR", gguf_file="model.gguf"{passed})
tokenizer = AutoTokenizer.from_pretrained("DIR", gguf_file="model.gguf", split_special_tokens=True)
```

DIR is this folder; the packages `gguf` and `accelerate` must be installed. `split_special_tokens` keeps text that
spells a control token plain text. llama.cpp and the programs that are built on it read `model.gguf` as well.
""",
    )


def model_card(trained: TrainedModel, state: State, run: Path, exported: Exported, loading: Loading) -> str:
    """The card in Markdown, with the front matter that model hubs read; with loss and floor where they are known."""
    config, tokenizer = trained.config, trained.tokenizer
    assert isinstance(config.model, DecoderConfig)
    added = json.loads(tokenizer.to_json())["added_tokens"]
    begin = next(token["content"] for token in added if token["id"] == tokenizer.end_of_text)
    imported = config.corpus.type == "none"
    origin = "imported" if imported else f"trained with Pellucid {state.pellucid_version or __version__}"
    trained_on = "" if imported else f"| trained on | {config.corpus.type}, {state.tokens:,} tokens |\n"
    row = next((row for row in reversed(read_rows(run / "metrics.jsonl")) if row["step"] == state.step), {})
    values = _without_folders(config.model_dump(mode="json"))
    return f"""\
---
license: unknown
library_name: {loading.library}
pipeline_tag: text-generation
tags:
- pellucid
---

# {config.name}

A decoder-only transformer, {origin}, exported from step {state.step:,} by Pellucid {__version__}.

`license: unknown` in the first lines is for you to replace: the licence depends on what the model was trained on.

| | |
|---|---|
| written as | {exported.name} |
{_parameters(trained, exported)}| vocabulary | {tokenizer.vocab_size:,} tokens |
| context | {trained.model.context_length:,} tokens |
{trained_on}{_losses(state, row, config.loss_unit)}
{_rewritten(config.model, exported)}## How to load it

{loading.text.replace("{begin}", begin).replace("{end}", END_OF_TURN)}
## What it cannot do

{TALKS if tokenizer.has_chat_tokens else WRITES}, knows no facts beyond that text, and repeats
what is wrong or unfair in it. It was not tested for any use that matters to somebody.

## {"Its shape" if imported else "How it was trained"}

```yaml
{write_yaml({"model": values["model"]} if imported else values).rstrip()}
```
"""


def _parameters(trained: TrainedModel, exported: Exported) -> str:
    """Rows of the table: the number of parameters in the run, and in the file, if that differs."""
    n_parameters = sum(parameter.numel() for parameter in trained.model.parameters())
    rows = f"| parameters | {n_parameters:,} |\n"
    if exported.n_parameters != n_parameters:
        rows += f"| numbers in this folder | {exported.n_parameters:,}: the same function, at greater length |\n"
    return rows


def _rewritten(model: DecoderConfig, exported: Exported) -> str:
    """A section about rewritten knobs; empty if there are none."""
    before, after = (
        flat({**each.model_dump(mode="json"), "head_width": head_width(each)}) for each in (model, exported.config)
    )
    knobs = [key for key in before if key.partition(".")[0] in REWRITTEN and before[key] != after.get(key)]
    if not knobs:
        return ""
    changes = "\n".join(f"- `{key}`: {before[key]} became {after.get(key)}" for key in knobs)
    return f"""\
## The same function, written in another way

The run was trained with settings that {exported.name} does not have. It was rewritten as an equal model: its logits are
those of the run, up to the rounding of float32. The equations: Pellucid's docs/ecosystem.md#one-function-two-names.

{changes}

"""


def _without_folders(value: Any, is_path: bool = False) -> Any:
    """A config whose absolute paths, which may be private, are cut to the names of the files."""
    match value:
        case dict():
            return {key: _without_folders(each, is_path or key in PATHS) for key, each in value.items()}
        case list():
            return [_without_folders(each, is_path) for each in value]
        case str() if is_path and (value.startswith("~") or PureWindowsPath(value).anchor):
            return PureWindowsPath(value).name  # it knows both kinds of slashes
        case _:
            return value


def _losses(state: State, row: Mapping[str, Any], unit: str) -> str:
    """Rows of the table: the validation loss, and how far that is above the floor."""
    if state.val_loss is None:
        return "| validation loss | not measured |\n"
    rows = f"| validation loss | {state.val_loss:.4f} {unit} |\n"
    floor = row.get("val_floor")
    if isinstance(floor, float):
        share = f"{state.val_loss / floor - 1:.1%} of the floor"
        rows += f"| floor | {floor:.4f} nats per token: no model can do better |\n"
        rows += f"| excess | {state.val_loss - floor:.4f} nats per token, {share} |\n"
    return rows
