"""The README.md of an exported model: what it is, how good it is, how to load it, and what it cannot do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pellucid.checkpoint.build import TrainedModel
from pellucid.checkpoint.step_directory import State, read_state
from pellucid.config.load import run_config_to_yaml
from pellucid.version import __version__


class Loading(NamedTuple):
    """The library that a model hub should name, and how to load the model; `{begin}` is the token before a text."""

    library: str
    text: str


HUGGING_FACE = Loading(
    "transformers",
    """\
```python
from transformers import pipeline

write = pipeline("text-generation", model="DIR")
print(write("Once", max_new_tokens=100)[0]["generated_text"])
```

DIR is this folder. Nothing of Pellucid is needed, and no `trust_remote_code`. The tokenizer puts `{begin}` before a
text, because the model has never seen a text without it. Text that spells a control token stays plain text.
""",
)


def gguf_loading(arguments: Mapping[str, Any]) -> Loading:
    """`arguments`: what transformers has to be told, since it does not read it in the file."""
    given = "".join(f", {name}={value}" for name, value in arguments.items())
    return Loading(
        "gguf",
        f"""\
```python
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("DIR", gguf_file="model.gguf"{given})
tokenizer = AutoTokenizer.from_pretrained("DIR", gguf_file="model.gguf", split_special_tokens=True)
```

DIR is this folder; the packages `gguf` and `accelerate` must be installed. `split_special_tokens` keeps text that
spells a control token plain text. llama.cpp and the programs that are built on it read `model.gguf` as well.
""",
    )


def model_card(trained: TrainedModel, step_directory: Path, loading: Loading) -> str:
    """Markdown with the front matter that model hubs read. Loss and floor stand there where they are known."""
    config, tokenizer = trained.config, trained.tokenizer
    n_parameters = sum(parameter.numel() for parameter in trained.model.parameters())
    state, metrics_file = read_state(step_directory), step_directory.parent / "metrics.jsonl"
    added = json.loads(tokenizer.to_json())["added_tokens"]
    begin = next(token["content"] for token in added if token["id"] == tokenizer.end_of_text)
    return f"""\
---
license: unknown
library_name: {loading.library}
pipeline_tag: text-generation
tags:
- pellucid
---

# {config.name}

A decoder-only transformer, trained with Pellucid {state.pellucid_version or __version__} and exported from step \
{state.step:,}. The licence of a model depends on what it was trained on: write yours into the first lines.

| | |
|---|---|
| parameters | {n_parameters:,} |
| vocabulary | {tokenizer.vocab_size:,} tokens |
| context | {trained.model.context_length:,} tokens |
| text | {config.corpus.type} |
| trained on | {state.tokens:,} tokens |
{_losses(state, _row_of(metrics_file, state.step))}
## How to load it

{loading.text.replace("{begin}", begin)}
## What it cannot do

It continues text like that of its corpus. It follows no instructions, knows no facts beyond that text, and repeats
what is wrong or unfair in it. It was not tested for any use that matters to somebody.

## How it was trained

```yaml
{run_config_to_yaml(config).rstrip()}
```
"""


def _losses(state: State, row: Mapping[str, Any]) -> str:
    """Rows of the table: nats per token on held-out text, and how far that is from the best that any model can do."""
    if state.val_loss is None:
        return "| validation loss | not measured |\n"
    rows = f"| validation loss | {state.val_loss:.4f} nats per token |\n"
    floor = row.get("val_floor")
    if isinstance(floor, float):
        share = f"{state.val_loss / floor - 1:.1%} of the floor"
        rows += f"| floor | {floor:.4f} nats per token: no model can do better |\n"
        rows += f"| excess | {state.val_loss - floor:.4f} nats per token, {share} |\n"
    return rows


def _row_of(metrics_file: Path, step: int) -> dict[str, Any]:
    """The row of metrics.jsonl for a step; {} if the checkpoint was copied without it."""
    try:
        rows = [json.loads(line) for line in metrics_file.read_text("utf-8").splitlines()]
    except (OSError, ValueError):
        return {}
    return next((row for row in reversed(rows) if isinstance(row, dict) and row.get("step") == step), {})
