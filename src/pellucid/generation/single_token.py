"""The decoder for one token per sequence, which writes text.

It computes what `decoder.Decoder` computes, which is the text to read first, in half to two thirds of the time: each
layer gives its lean form (`model/one_token.py`). Before it writes, it is compared with the model at hand: once, and
again after any edit. If a layer was added or edited, so that the two differ, the model itself writes.

Shapes: B sequences, T tokens of a text, D model, V vocabulary.
"""

import logging
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from types import FunctionType
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch import Tensor, nn

from pellucid.model.decoder import Decoder
from pellucid.model.kv_cache import KVCache
from pellucid.model.language_model import LanguageModel, State, eval_mode, product_dtype
from pellucid.model.one_token import (
    Projection,
    as_function,
    as_it_is,
    called_as_they_are,
    has_hooks,
    has_lean_form,
    is_close,
    on_one_token,
)
from pellucid.model.positions import Position

_log = logging.getLogger(__name__)

_ONEDNN_LOCK = threading.Lock()
_WAS_ENABLED: list[bool] = []  # oneDNN, when each thread came into `without_onednn`, the first at the bottom

TOKENS_OF_A_PROOF = 64  # an edited mask that hides only what is further back goes unnoticed
_PROVED: WeakKeyDictionary[Decoder, list[object]] = WeakKeyDictionary()  # with what decided its logits then
_OF_EVERY_MODULE = vars(nn.Module()).keys()
_WARNED_OF: WeakSet[Decoder] = WeakSet()  # those that write slowly


class SingleTokenDecoder:
    """`decoder(tokens_B1, cache)[:, -1]` for a decoder in eval mode, to rounding."""

    def __init__(self, decoder: Decoder) -> None:
        self.decoder = decoder
        self._embed, self._unembed = lean_embeddings(decoder.embeddings)
        self._add_positions, _ = decoder.positions.on_one_token()
        self._blocks = [on_one_token(block) for block in decoder.blocks]
        self._final_norm, self._soft_cap = as_function(decoder.final_norm), as_function(decoder.soft_cap)
        self._dtype = product_dtype(next(decoder.parameters()))
        self._kernels = without_onednn if self._dtype == torch.float32 else nullcontext

    def __call__(self, tokens_B: Tensor, cache: State) -> Tensor:
        """Logits (B, V) for the token after this one, which is added to the cache."""
        assert isinstance(cache, KVCache)
        if cache.length >= (most := self.decoder.context_length):
            raise ValueError(f"{cache.length + 1} tokens are more than the context_length of {most}")
        return self.logits(tokens_B, cache.length, cache.layers)

    def logits(self, tokens_B: Tensor, position: Position, layer_caches: Sequence[State]) -> Tensor:
        with self._kernels():
            x_BD = self._add_positions(self._embed(tokens_B), position).to(self._dtype)
            for block, layer_cache in zip(self._blocks, layer_caches, strict=True):
                x_BD = block(x_BD, layer_cache)
            return self._soft_cap(self._unembed(self._final_norm(x_BD)))


def lean_embeddings(embeddings: Any) -> tuple[Projection, Projection]:
    """From tokens to vectors, and from vectors to logits."""
    if has_lean_form(embeddings):
        return embeddings.on_one_token()  # type: ignore[no-any-return]
    embeddings = as_it_is(embeddings)
    return lambda tokens_B: embeddings.embed(tokens_B[:, None])[:, 0], embeddings.unembed


def reader_of_one_token(model: LanguageModel) -> Callable[[Tensor, State], Tensor]:
    """From the next token of each sequence to the logits (B, V) after it, for any kind of model in eval mode.

    The lean decoder, if it computes what the model does; else the model itself, with a warning once for each decoder.
    """
    if isinstance(model, Decoder):
        if (lean := proved(model)) is not None:
            return lean
        if model not in _WARNED_OF:
            _log.warning("writes with the model itself, 1.5 x slower: the lean decoder computes something else")
            _WARNED_OF.add(model)
    return lambda tokens_B, state: model(tokens_B[:, None], state)[:, -1]


def reader_of_prompts(model: LanguageModel, read_one: object) -> tuple[Callable[..., Tensor], Projection]:
    """From tokens to vectors, and on to logits: only a proved decoder need not compute those of every token."""
    if isinstance(read_one, SingleTokenDecoder):
        return read_one.decoder.hidden, read_one.decoder.unembed
    return model, nn.Identity()


def proved(model: Decoder) -> SingleTokenDecoder | None:
    """A lean decoder, if it gives the model's logits, or did, and nothing that decides them has changed since.

    It is new each time: an optimizer's fused kernel changes weights without counting, so an old one may be outdated.
    """
    now, lean = all_that_decides(model), SingleTokenDecoder(model)
    if _PROVED.get(model) != now:
        if not last_logits_agree(lean, model):
            return None
        _PROVED[model] = now
    return lean


def all_that_decides(model: Decoder) -> list[object]:
    """All that its logits follow from, but for the text: its weights, the settings of its parts, the code of its files.

    In a notebook any of it may be edited between two texts. To list it takes a tenth of the time of a proof.
    """
    parts, files = list(model.modules()), dict.fromkeys(_files_of_models())
    files |= dict.fromkeys(type(part).__module__ for part in parts)  # a layer of one's own
    decides: list[object] = [product_dtype(next(model.parameters()))]
    for name in files:
        for value in list(vars(sys.modules[name]).values()):  # a copy, as other threads may import
            members = list(vars(value).values()) if isinstance(value, type) and value.__module__ == name else (value,)
            decides += [(each, each.__code__) for each in members if isinstance(each, FunctionType)]
    for part in parts:
        own = vars(part).keys() - _OF_EVERY_MODULE
        decides += [type(part), has_hooks(part), {name: _without_its_module(vars(part)[name]) for name in own}]
        tensors = (*part._parameters.values(), *part._buffers.values())
        decides += [each if each is None else _as_it_is_now(each) for each in tensors]
    return decides


def _as_it_is_now(tensor: Tensor) -> tuple[int, int]:
    """Where it lies, and how often it was changed there; tensors of inference mode do not count that."""
    return tensor.data_ptr(), -1 if tensor.is_inference() else tensor._version


@cache
def _files_of_models() -> list[str]:
    return [name for name in list(sys.modules) if name.startswith(("pellucid.model.", "pellucid.kernels."))]


def _without_its_module(value: object) -> object:
    """A setting that may be remembered: a method would keep its model in memory."""
    if isinstance(value, int | float | str | FunctionType | None):
        return value
    return getattr(value, "__func__", id(value))


def own_part(model: Decoder) -> str | None:
    """Name the part of a model that its config does not describe: who reads an export has the config, not the code.

    None if all logits of a short text are those of the lean forms, which call nothing that somebody may have edited.
    """
    with called_as_they_are() as names:
        lean = SingleTokenDecoder(model)
    if names:
        return ", ".join(dict.fromkeys(names))
    with eval_mode(model):
        is_equal = all_logits_agree(lean, model)
    return None if is_equal else "a layer that computes something else than its equation"


@torch.inference_mode()
def last_logits_agree(lean: SingleTokenDecoder, model: Decoder) -> bool:
    """Whether both give the same logits after a short text, of which the lean decoder reads the last token alone."""
    text_1T = short_text(model)
    state = model.new_state(1, text_1T.size(1))
    if text_1T.size(1) > 1:
        model.hidden(text_1T[:, :-1], state)
    return is_close(lean(text_1T[:, -1], state), model(text_1T)[:, -1])


@torch.inference_mode()
def all_logits_agree(lean: SingleTokenDecoder, model: Decoder) -> bool:
    """Whether the lean decoder, token by token, gives all logits of a short text that the model gives at once."""
    text_1T = short_text(model)
    state = model.new_state(1, text_1T.size(1))
    lean_TV = torch.cat([lean(text_1T[:, t], state) for t in range(text_1T.size(1))])
    return is_close(lean_TV, model(text_1T)[0])


def short_text(model: Decoder) -> Tensor:
    """(1, T): different tokens, as far as the vocabulary and the context go."""
    n_tokens = min(TOKENS_OF_A_PROOF, model.context_length)
    return torch.arange(n_tokens, device=next(model.parameters()).device)[None] * 7 % model.vocab_size


@contextmanager
def without_onednn() -> Iterator[None]:
    """oneDNN, to which PyTorch gives float32 GELU on a CPU, prepares each call for longer than a row of it takes.

    The switch is the whole process's, so with several threads inside, the last to leave puts it back.
    """
    with _ONEDNN_LOCK:
        _WAS_ENABLED.append(bool(torch.backends.mkldnn.enabled))
        torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
    try:
        yield
    finally:
        with _ONEDNN_LOCK:
            was_enabled = _WAS_ENABLED.pop()
            if not _WAS_ENABLED:
                torch.backends.mkldnn.enabled = was_enabled  # type: ignore[assignment]
