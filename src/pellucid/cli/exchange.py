"""Commands that make another model's files of a run, or a run of them: export, import, merge, quantize."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, Option

from pellucid.cli.arguments import Json, Run, Which
from pellucid.cli.terminal import heed_stop_during_imports, note, print_result


def export(
    run: Run,
    directory: Annotated[Path, Argument(metavar="DIR", help="A new folder.")],
    to: Annotated[Literal["hf", "gguf"], Option(help="hf: for transformers; gguf: for llama.cpp.")],
    precision: Annotated[Literal["fp32", "bf16", "fp16"], Option(help="Of the numbers in the files.")] = "fp32",
    checkpoint: Which = "best",
) -> None:
    """Write a trained model as others read it. A folder for Hugging Face transformers, or one with a GGUF file."""
    from pellucid.exchange.export import export_run

    heed_stop_during_imports()
    export_run(run, directory, to=to, which=checkpoint, precision=precision)
    print(directory)


def import_(
    source: Annotated[str, Argument(metavar="DIR_OR_HUB_ID", help="Folder of transformers, or a name on the hub.")],
    run: Annotated[Path, Argument(metavar="RUN", help="The run to make of it: a new folder.")],
) -> None:
    """Make a run of a model from elsewhere. GPT-2, Llama, Qwen3 and whatever `export` writes."""
    from pellucid.exchange.imports import import_run

    heed_stop_during_imports()
    import_run(source, run)
    print(run)


def merge(
    run: Run,
    out: Annotated[Path, Option(metavar="DIR", help="The run to make of it: a new folder.")],
    checkpoint: Which = "best",
) -> None:
    """Make a run that needs no other. Its adapter becomes part of the weights, and codes are numbers again."""
    from pellucid.exchange.converted import merge_run

    heed_stop_during_imports()
    merge_run(run, out, which=checkpoint)
    print(out)


def quantize(
    run: Run,
    to: Annotated[Literal["int8", "nf4", "nf4-double"], Option(help="8.5, 4.5 or 4.13 bits for each weight.")],
    out: Annotated[Path, Option(metavar="DIR", help="The run to make of it: a new folder.")],
    checkpoint: Which = "best",
    as_json: Json = False,
) -> None:
    """Make a run of the same weights in fewer bits. Those of linear layers inside blocks; prints what it saves."""
    from pellucid.exchange.converted import quantize_run

    heed_stop_during_imports()
    sizes = quantize_run(run, out, to, which=checkpoint)
    note(f"wrote {out}")
    print_result(sizes.to_json() if as_json else sizes.table())
