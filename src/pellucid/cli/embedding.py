"""Commands that turn texts into vectors: embed, nearest, map, probe."""

from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, Option

from pellucid.cli.arguments import Json, Run, Which, read_prompt
from pellucid.cli.terminal import heavy_imports, note, print_result

Texts = Annotated[list[str] | None, Option("--text", metavar="TEXT", help="A text; may be repeated.")]
Files = Annotated[list[Path] | None, Option("--file", metavar="F", help="A text file; - is stdin; may be repeated.")]
Documents = Annotated[int, Option(metavar="N", min=1, help="Without a text: at most N held-out documents.")]
Layer = Annotated[str, Option(metavar="N|last", help="0 is the embedding, N is after block N.")]
Pooling = Annotated[Literal["mean", "last"], Option(help="Mean over a text's tokens, or the last one.")]


def embed(
    run: Run,
    text: Texts = None,
    file: Files = None,
    documents: Documents = 1000,
    per: Annotated[Literal["text", "token"], Option(help="One vector per text, or per token.")] = "text",
    pooling: Pooling = "mean",
    layer: Layer = "last",
    checkpoint: Which = "best",
    output: Annotated[Path | None, Option(metavar="FILE", help="Write the vectors: .npz or .safetensors.")] = None,
    as_json: Json = False,
) -> None:
    """Turn texts into vectors, one per text or token."""
    with heavy_imports():
        from pellucid.inspection.build import embed_run
        from pellucid.inspection.embed import layer_named
        from pellucid.trained import load_trained_run

    trained, _ = load_trained_run(run, checkpoint)
    pooled = None if per == "token" else pooling
    vectors = embed_run(trained, all_texts(text, file), layer=layer_named(layer), pooling=pooled, most=documents)
    if output is not None:
        vectors.save(output)
        note(f"wrote {output}")
    if as_json:
        print_result({"run": trained.config.name, "step": trained.step, **vectors.to_json()})
    elif output is None:
        print_result(vectors.table())


def nearest(
    run: Run,
    query: Annotated[str, Argument(metavar="TEXT", help="The text to compare with.")],
    k: Annotated[int, Option("--k", metavar="K", min=1, help="How many to show.")] = 5,
    text: Texts = None,
    file: Files = None,
    documents: Documents = 1000,
    pooling: Pooling = "mean",
    layer: Layer = "last",
    checkpoint: Which = "best",
    as_json: Json = False,
) -> None:
    """Show the texts whose vectors are most similar to that of TEXT."""
    with heavy_imports():
        from pellucid.inspection import embed
        from pellucid.inspection.build import embed_run
        from pellucid.trained import load_trained_run

    trained, _ = load_trained_run(run, checkpoint)
    of_layer = embed.layer_named(layer)
    vectors = embed_run(trained, all_texts(text, file), layer=of_layer, pooling=pooling, most=documents)
    query_vector = embed_run(trained, [query], layer=of_layer, pooling=pooling).vectors[0]
    neighbours = embed.nearest(query_vector, vectors, k)
    as_dicts = [neighbour.to_json() for neighbour in neighbours]
    print_result({"nearest": as_dicts} if as_json else embed.nearest_table(neighbours))


def draw_map(
    run: Run,
    figure: Annotated[Path, Argument(metavar="FILE", help="Where to draw it: PNG or SVG.")],
    colour: Annotated[str | None, Option(metavar="PROPERTY", help="Colour by this. [default: plot]")] = None,
    text: Texts = None,
    file: Files = None,
    documents: Documents = 1000,
    pooling: Pooling = "mean",
    layer: Layer = "last",
    checkpoint: Which = "best",
) -> None:
    """Draw texts on a map, where similar ones are near each other."""
    with heavy_imports():
        from pellucid.inspection.build import embed_run, property_of_texts
        from pellucid.inspection.embed import layer_named
        from pellucid.inspection.embedding_map import require_picture, write_map
        from pellucid.trained import load_trained_run

    require_picture(figure)
    trained, _ = load_trained_run(run, checkpoint)
    vectors = embed_run(trained, all_texts(text, file), layer=layer_named(layer), pooling=pooling, most=documents)
    properties = property_of_texts(trained, vectors.texts, colour)
    title = f"{len(vectors.texts):,} texts by their vectors (run {trained.config.name}, {pooling} of layer {layer})"
    write_map(figure, vectors.vectors, properties, title, of=colour or "plot")
    note(f"wrote {figure}")


def probe(
    run: Run,
    text: Texts = None,
    file: Files = None,
    documents: Documents = 1000,
    checkpoint: Which = "best",
    as_json: Json = False,
) -> None:
    """Show what a linear probe can read off each layer. At the ends of sentences, about the fable told so far."""
    with heavy_imports():
        from pellucid.inspection.build import probe_run
        from pellucid.trained import load_trained_run

    trained, _ = load_trained_run(run, checkpoint)
    scores = probe_run(trained, all_texts(text, file), most=documents)
    print_result(scores.to_json() if as_json else scores.table())


def all_texts(texts: list[str] | None, files: list[Path] | None) -> list[str]:
    return [*(texts or ()), *(read_prompt(None, file) or "" for file in files or ())]
