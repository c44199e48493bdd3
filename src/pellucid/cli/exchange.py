"""Commands that convert models: export, import, merge, quantize."""

from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, Option

from pellucid.cli.arguments import Json, Run, Which
from pellucid.cli.terminal import heavy_imports, note, print_result
from pellucid.errors import ConfigError


def export(
    run: Run,
    directory: Annotated[Path, Argument(metavar="DIR", help="The new folder.")],
    to: Annotated[
        Literal["hf", "gguf", "peft"],
        Option(help="hf: for transformers; gguf: for llama.cpp; peft: the adapter alone."),
    ],
    precision: Annotated[
        Literal["fp32", "bf16", "fp16", "q8_0", "q4_0"],
        Option(help="Number format of the weights; q8_0 and q4_0: llama.cpp's, for gguf."),
    ] = "fp32",
    base: Annotated[
        str | None, Option(metavar="DIR_OR_HUB_ID", help="For peft: the adapter's base, a transformers folder.")
    ] = None,
    no_rewrite: Annotated[
        bool, Option("--no-rewrite", help="For hf: refuse a model that no class has as it is, instead of an equal one.")
    ] = False,
    checkpoint: Which = "best",
) -> None:
    """Export a trained model for other programs. A folder for transformers or PEFT, or a GGUF file for llama.cpp."""
    with heavy_imports():
        from pellucid.exchange.export import export_run

    if no_rewrite and to != "hf":
        raise ConfigError("command line", "--no-rewrite is for --to hf", "leave it out")
    export_run(run, directory, to=to, which=checkpoint, precision=precision, base=base, rewrite=not no_rewrite)
    print(directory)


def import_(
    source: Annotated[str, Argument(metavar="DIR_OR_HUB_ID", help="A transformers folder, or a name on the hub.")],
    run: Annotated[Path, Argument(metavar="RUN", help="Folder of the new run.")],
    base: Annotated[
        str | None, Option(metavar="BASE_RUN", help="For a LoRA adapter of PEFT: the run of its base.")
    ] = None,
) -> None:
    """Turn a model from elsewhere into a run. Reads GPT-2, Llama, Qwen3 and others, and what `export` writes."""
    with heavy_imports():
        from pellucid.exchange.imports import import_run

    import_run(source, run, base)
    print(run)


def merge(
    run: Run,
    out: Annotated[Path, Option(metavar="DIR", help="Folder of the new run.")],
    checkpoint: Which = "best",
) -> None:
    """Merge an adapter into its base. The new run needs no other, and is no longer quantized."""
    with heavy_imports():
        from pellucid.exchange.converted import merge_run

    merge_run(run, out, which=checkpoint)
    print(out)


def quantize(
    run: Run,
    to: Annotated[Literal["int8", "nf4", "nf4-double"], Option(help="8.5, 4.5 or 4.13 bits per weight.")],
    out: Annotated[Path, Option(metavar="DIR", help="Folder of the new run.")],
    checkpoint: Which = "best",
    as_json: Json = False,
) -> None:
    """Store a run in fewer bits. Rounds the linear layers inside the blocks, and prints what that saves.

    With large matrices, int8 also writes a single text a little faster; nf4 is only smaller.
    """
    with heavy_imports():
        from pellucid.exchange.converted import quantize_run

    sizes = quantize_run(run, out, to, which=checkpoint)
    note(f"wrote {out}")
    print_result(sizes.to_json() if as_json else sizes.table())
