"""Embeddings of texts: the hidden vector of each token, or one for a whole text (docs/embeddings.md).

Layer 0 is the embedding, layer n the residual stream after block n, and the last the stream after the final norm; other
models have similar layers. Before a text the model reads an end_of_text, as in training, which has no vector and is in
no mean.

Shapes: N texts or tokens, B batch, T tokens, D width of the layer.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import save
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from pellucid.errors import ConfigError, DataError, Option
from pellucid.files import written_whole
from pellucid.model.language_model import LanguageModel, eval_mode
from pellucid.tables import table
from pellucid.tokenizer import Tokenizer
from pellucid.tokenizer.pieces import token_text, visible

LAYER = Option("--layer", "layer")
Floats = NDArray[np.float32]
Pooling = Literal["mean", "last"]
Layer = int | Literal["last"]

TOKENS_AT_ONCE = 4096
ROWS_SHOWN, NUMBERS_SHOWN, CHARACTERS_SHOWN = 10, 4, 80


@dataclass(frozen=True)
class Embeddings:
    """Vectors (N, D), the text or token of each, and the number of the text it is from, from 0."""

    vectors: Floats
    texts: list[str]
    text_numbers: list[int]
    layer: Layer
    pooling: Pooling | None  # None: a vector for each token

    def to_json(self) -> dict[str, object]:
        """The vectors as `pellucid embed --json` prints them."""
        rows = zip(self.text_numbers, self.texts, self.vectors.tolist(), strict=True)
        kind = "token" if self.pooling is None else "text"
        vectors = [{"number": number, kind: text, "vector": vector} for number, text, vector in rows]
        return {"layer": self.layer, "pooling": self.pooling, "vectors": vectors}

    def table(self) -> str:
        """A table of the first vectors, and the first numbers of each."""
        n_vectors, width = self.vectors.shape
        pooled = {"mean": "text, the mean over its tokens", "last": "text, that of its last token", None: "token"}
        title = f"layer {self.layer}: {n_vectors:,} vectors of {width} numbers, one for each {pooled[self.pooling]}"
        rows = [
            [*(f"{x:.3f}" for x in x_D[:NUMBERS_SHOWN]), "…" if width > NUMBERS_SHOWN else "", beginning(text)]
            for x_D, text in zip(self.vectors[:ROWS_SHOWN], self.texts, strict=False)
        ]
        more = n_vectors - ROWS_SHOWN
        shown = table((), rows, above=[title, ""], words=[len(rows[0]) - 1], is_cut=True)
        return f"{shown}\n… and {more:,} more: --json or --output FILE for all" if more > 0 else shown

    def save(self, file: Path) -> None:
        """Save as .npz (arrays `vectors`, `texts`, `text_numbers`) or .safetensors (with the texts in its metadata)."""
        if file.suffix not in (".npz", ".safetensors"):
            what = f"{file} is neither .npz nor .safetensors"
            raise ConfigError(Option("--output", "file"), what, "end its name with one of them")
        numbers = np.array(self.text_numbers, dtype=np.int64)
        with written_whole(file) as draft, draft.open("wb") as out:
            if file.suffix == ".npz":
                np.savez(out, vectors=self.vectors, texts=np.array(self.texts, dtype=str), text_numbers=numbers)
            else:
                metadata = {"layer": str(self.layer), "pooling": str(self.pooling), "texts": json.dumps(self.texts)}
                out.write(save({"vectors": self.vectors, "text_numbers": numbers}, metadata))


def layer_named(name: str) -> Layer:
    """The number of a layer, or "last". Raises ConfigError for another name."""
    if name == "last":
        return "last"
    if not name.isdecimal():
        raise ConfigError(LAYER, f"there is no layer {name!r}", "give a number from 0, or last")
    return int(name)


def embed(
    model: LanguageModel,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    layer: Layer = "last",
    pooling: Pooling | None = "mean",
) -> Embeddings:
    """A vector for each text: the mean over its tokens, or that of the last; with pooling None, one for each token.

    A token's vector depends only on the tokens up to it, or on its whole text if the model sees both sides. DataError
    for a text that is empty, longer than the context, or impossible to encode, and for no text at all; ConfigError if
    the model has no vectors or no such layer.
    """
    if not texts:
        raise DataError("embed", "there is no text", "give at least one")
    tokens = []
    for layers in layers_of_texts(model, tokenizer, texts):
        if layer != "last" and layer not in range(len(layers)):
            what = f"there is no layer {layer} in this model"
            raise ConfigError(LAYER, what, f"choose from 0 to {len(layers) - 1}, or last")
        tokens.append(layers[-1 if layer == "last" else layer])
    if pooling is None:
        shown = [visible(token_text(tokenizer, id_)) for text in texts for id_ in tokenizer.encode(text)]
        numbers = [number for number, x_TD in enumerate(tokens) for _ in x_TD]
        return Embeddings(np.concatenate(tokens), shown, numbers, layer, pooling)
    pooled = [x_TD[-1] if pooling == "last" else x_TD.mean(axis=0) for x_TD in tokens]
    return Embeddings(np.stack(pooled), list(texts), list(range(len(texts))), layer, pooling)


def layers_of_texts(model: LanguageModel, tokenizer: Tokenizer, texts: Sequence[str]) -> Iterator[list[Floats]]:
    """The vectors (T, D) of each text's tokens, layer by layer."""
    rows = [[tokenizer.end_of_text, *ids_that_fit(model, tokenizer, text)] for text in texts]
    device = next(model.parameters()).device
    sees_padding = any(getattr(module, "sees_later_tokens", False) for module in model.modules())
    n_at_once = 1 if sees_padding else max(1, TOKENS_AT_ONCE // max(map(len, rows), default=1))
    for start in range(0, len(rows), n_at_once):
        batch = rows[start : start + n_at_once]
        tokens_BT = pad_sequence([torch.tensor(row) for row in batch], True, tokenizer.end_of_text)  # after all tokens
        layers = [x_BTD.float().cpu().numpy() for x_BTD in hidden_layers(model, tokens_BT.to(device))]
        for i, row in enumerate(batch):
            yield [x_BTD[i, 1 : len(row)] for x_BTD in layers]


def ids_that_fit(model: LanguageModel, tokenizer: Tokenizer, text: str) -> list[int]:
    """Token ids of a text. DataError if there are none, or too many to read at once."""
    ids = tokenizer.encode(text)
    if not ids:
        raise DataError("the text", "it is empty", "give one with at least a character")
    if len(ids) >= model.max_positions:
        where, room = f"the text “{beginning(text)}”", model.max_positions - 1
        raise DataError(where, f"{len(ids):,} tokens are more than the {room:,} that the model can read", "shorten it")
    return ids


@torch.no_grad()
def hidden_layers(model: LanguageModel, tokens_BT: Tensor) -> list[Tensor]:
    """The hidden vectors (B, T, D) of all tokens, layer by layer. The model is unchanged afterwards.

    ConfigError if it has none, as a bigram, which has only logits.
    """
    modules = model.hidden_modules()
    if not modules:
        what = f"a {type(model).__name__} has no hidden vectors, only logits"
        raise ConfigError("model.type", what, "embed with a run of another type, such as decoder")
    layers: list[Tensor] = []
    with eval_mode(model), ExitStack() as hooks:
        hooks.enter_context(modules[0].register_forward_pre_hook(lambda _, inputs: layers.append(inputs[0])))
        for module in modules:
            hooks.enter_context(module.register_forward_hook(lambda _, __, output: layers.append(_vectors(output))))
        model(tokens_BT)
    return layers


def _vectors(output: Any) -> Tensor:
    """The vectors in a module's output, beside which PyTorch's recurrent networks return their state."""
    vectors: Tensor = output[0] if isinstance(output, tuple) else output
    return vectors


@dataclass(frozen=True)
class Neighbour:
    """A text near another: its number, from 1, and the cosine similarity of their vectors."""

    number: int
    similarity: float
    text: str

    def to_json(self) -> dict[str, object]:
        return {"number": self.number, "similarity": self.similarity, "text": self.text}


def nearest(vector_D: Floats, embeddings: Embeddings, k: int) -> list[Neighbour]:
    """The k texts with the largest cosine similarity x·y / (|x| |y|), the most similar first."""
    lengths_N = np.linalg.norm(embeddings.vectors, axis=1) * np.linalg.norm(vector_D)
    similarities_N = embeddings.vectors @ vector_D / np.maximum(lengths_N, np.finfo(np.float32).tiny)
    order = np.argsort(-similarities_N, kind="stable")[:k]
    return [Neighbour(int(i) + 1, float(similarities_N[i]), embeddings.texts[i]) for i in order]


def nearest_table(neighbours: Sequence[Neighbour]) -> str:
    rows = [(f"{each.similarity:.3f}", str(each.number), beginning(each.text)) for each in neighbours]
    return table(("cosine", "number", "text"), rows, words=[2])


def beginning(text: str) -> str:
    """The first words of a text, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= CHARACTERS_SHOWN else line[:CHARACTERS_SHOWN].rpartition(" ")[0] + " …"
