"""Rewrites a decoder as an equal one of another shape, which other programs support.

    config, tensors = as_llama(config, tensors)      the demo becomes a Qwen3, for instance

Each rewriting is an equation. In float32 the logits agree up to rounding, or to the bounds given here.

Shapes: D model, H heads (queries' or keys'), K head width, F feed-forward, V vocabulary.
"""

from math import sqrt
from typing import Any

from torch import Tensor

from pellucid.checkpoint.step_directory import Tensors
from pellucid.config.model import DecoderConfig, NoPositionConfig, RotaryConfig, SinusoidalConfig
from pellucid.errors import ConfigError
from pellucid.model.build import head_width

SHARPNESS = 2.0**12  # of the gate in `squared_relu_as_swiglu`
MOST_TURN = 2.0**-24  # radians over the whole context: what float32 rounds off beside 1


def as_llama(config: DecoderConfig, tensors: Tensors, width: int | None = None) -> tuple[DecoderConfig, Tensors]:
    """The decoder with RoPE in every layer, RMSNorm and SwiGLU: a Llama, or with qk_norm a Qwen3.

    width: of its heads, if that is wide enough. Raises ConfigError, naming the knob, if there is no such form.
    """
    if config.activation not in ("relu_squared", "swiglu"):
        what = f"{config.activation} is not the gate that a Llama's feed-forward has"
        raise ConfigError("model.activation", what, "train with swiglu or relu_squared")
    if config.norm == "layer_norm":
        config, tensors = layer_norm_as_rms_norm(config, tensors)
    if config.activation == "relu_squared":
        config, tensors = squared_relu_as_swiglu(config, tensors)
    if width is not None and width != head_width(config) and stride(config, width):
        return widen_heads(config, tensors, width)
    if slow_coordinates(config):
        return widen_heads(config, tensors, least_width(config))
    return config, tensors


def layer_norm_as_rms_norm(config: DecoderConfig, tensors: Tensors) -> tuple[DecoderConfig, Tensors]:
    """LayerNorm(x) = RMSNorm(x - mean(x)), with the same gain. So it is enough that x is centred from the start.

    In a pre-norm decoder only norms read the residual stream, so the mean can be subtracted from everything that is
    added to it: embeddings, positions, the outputs of W_O and W_2. The unembedding does not change, so it is untied.
    """
    if config.norm_placement in ("post", "output", "both"):
        placed = f"{config.norm_placement}-norm"
        what = f"with {placed} the residual stream is not centred, so no RMSNorm equals its layer_norm"
        raise ConfigError("model.norm_placement", what, "train with pre, or with norm: rms_norm")
    if config.bias:
        what = "an RMSNorm has no place for the bias of the last layer_norm"
        raise ConfigError("model.bias", what, "train with false, or with norm: rms_norm")
    if isinstance(config.position, SinusoidalConfig):
        what = "the table of sinusoidal positions is fixed and cannot be centred"
        raise ConfigError("model.position", what, "train with rope")
    rewritten = dict(tensors)
    if config.tied_embeddings:
        rewritten["embeddings.unembedding_VD"] = tensors["embeddings.embedding_VD"]
    for name, tensor in tensors.items():
        if name in ("embeddings.embedding_VD", "positions.positions_TD"):
            rewritten[name] = tensor - tensor.mean(dim=1, keepdim=True)
        elif name.endswith(("W_O.weight", "W_2.weight")):
            rewritten[name] = tensor - tensor.mean(dim=0, keepdim=True)
        elif config.qk_norm and name.endswith(("W_Q.weight", "W_K.weight")):
            width = head_width(config) if config.qk_norm is True else len(tensor)
            heads_HKD = tensor.reshape(-1, width, config.d_model)
            rewritten[name] = (heads_HKD - heads_HKD.mean(dim=1, keepdim=True)).flatten(0, 1)
    return _changed(config, norm="rms_norm", tied_embeddings=False), rewritten


def squared_relu_as_swiglu(config: DecoderConfig, tensors: Tensors) -> tuple[DecoderConfig, Tensors]:
    """relu(z)^2 = z relu(z), and relu(z) is the limit of silu(c z) / c: with W_gate = c W_1 a SwiGLU.

    c is 2^12, and W_1 and W_2 are each scaled by 2^-6: nothing is rounded, nothing leaves the range of float16, and
    z silu(c z) / c differs from relu(z)^2 by less than 1 / 2c^2 = 3e-8.
    """
    rewritten = dict(tensors)
    for name, tensor in tensors.items():
        layer, _, parameter = name.rpartition(".")
        if layer.endswith("W_1"):
            rewritten[f"{layer.removesuffix('W_1')}W_gate.{parameter}"] = SHARPNESS * tensor
            rewritten[name] = tensor / sqrt(SHARPNESS)
        elif name.endswith("W_2.weight"):
            rewritten[name] = tensor / sqrt(SHARPNESS)
    return _changed(config, activation="swiglu"), rewritten


def widen_heads(config: DecoderConfig, tensors: Tensors, width: int) -> tuple[DecoderConfig, Tensors]:
    """Heads of K coordinates as heads of K' > K, the others zero, in which every pair of coordinates rotates.

    Coordinates that must not rotate go to the slowest pairs, which turn by at most MOST_TURN over the context. Pair i
    of the I that rotate goes to pair m i: with base' = base^(K' / (2 I m)) it turns as before. Scores are divided by
    sqrt(K') instead of sqrt(K), so queries grow by s = sqrt(K' / K). With qk_norm both queries and keys grow by s, to
    keep their mean square over K' coordinates, and the keys' gain shrinks by s.
    """
    m = stride(config, width)
    if m == 0:
        fix = f"a head of {least_width(config)} coordinates is wide enough"
        raise ConfigError("model.position", f"its slowest clocks turn too fast in a head of {width}", fix)
    K, s = head_width(config), sqrt(width / head_width(config))
    rope = _rope(config)
    if rope.stretch and (rope.stretch.linear_in == "clocks" or rope.stretch.attention_factor != 1):
        raise ConfigError("model.position.stretch", "in a wider head clocks have other numbers", "train without it")
    if config.attention == "linear":
        raise ConfigError("model.attention", "linear attention sees the zeros of a wider head", "train with explicit")
    assert not config.qk_norm or config.norm == "rms_norm", "a LayerNorm sees the zeros"

    def placed(tensor: Tensor, places: list[int], others: float = 0.0) -> Tensor:
        """The rows of each head, moved to their places among the new ones."""
        heads = tensor.reshape(-1, K, *tensor.shape[1:])
        wider = heads.new_full((len(heads), width, *tensor.shape[1:]), others)
        wider[:, places] = heads
        return wider.flatten(0, 1)

    rewritten = dict(tensors)
    for name, tensor in tensors.items():
        layer, _, module = name.removeprefix("blocks.").partition(".attention.sublayer.")
        if not module:
            continue
        n_rotated = 0 if int(layer) in rope.unrotated(config.n_layers) else rope.rotated_width(K)
        turning, first = _places(K, n_rotated, width, m), list(range(K))
        match module.split("."):
            case ["W_Q", _]:
                rewritten[name] = placed(s * tensor, turning)
            case ["W_K", _]:
                rewritten[name] = placed(s * tensor if config.qk_norm else tensor, turning)
            case ["query_norm", *_]:
                rewritten[name] = placed(tensor, turning, others=1.0)
            case ["key_norm", *_]:
                rewritten[name] = placed(tensor / s, turning, others=1.0)
            case ["W_V", _]:
                rewritten[name] = placed(tensor, first)
            case ["W_O", "weight"]:
                rewritten[name] = placed(tensor.mT, first).mT.contiguous()
    base = rope.base ** (width / (rope.rotated_width(K) * m))
    whole = {"base": base, "rotated_fraction": 1.0, "unrotated_last_layers": 0, "unrotated_layers": ()}
    position = {**rope.model_dump(), **whole}
    return _changed(config, position=position, head_width=width, copying_init=False), rewritten


def stride(config: DecoderConfig, width: int) -> int:
    """The largest m of `widen_heads` with room for the coordinates that must not rotate; 0 if there is none."""
    rope, n_slow = _rope(config), slow_coordinates(config)
    n_rotated, n_pairs, n_slow_pairs = rope.rotated_width(head_width(config)), width // 2, (n_slow + 1) // 2
    if width % 2:
        return 0
    for m in range(width // n_rotated, 0, -1):
        fastest = rope.base ** (-2 * (n_pairs - n_slow_pairs) / (n_rotated * m))
        room = n_pairs - n_slow_pairs > (n_rotated // 2 - 1) * m
        if room and (n_slow == 0 or config.context_length * fastest <= MOST_TURN):
            return m
    return 0


def least_width(config: DecoderConfig) -> int:
    """The smallest of K, 2 K, 4 K, ... that has a stride: wide enough to leave the other coordinates unrotated."""
    width = head_width(config)
    while not stride(config, width):
        width *= 2
    return width


def slow_coordinates(config: DecoderConfig) -> int:
    """The largest number of coordinates of a head, in any layer, that do not rotate."""
    rope, K = _rope(config), head_width(config)
    return K if rope.unrotated(config.n_layers) else K - rope.rotated_width(K)


def _rope(config: DecoderConfig) -> RotaryConfig:
    match config.position:
        case RotaryConfig():
            return config.position
        case NoPositionConfig():
            return RotaryConfig(type="rope", unrotated_last_layers=config.n_layers)
        case _:
            what = f"{config.position.type} positions are added to the embedding, as no Llama does"
            raise ConfigError("model.position", what, "train with rope")


def _places(K: int, n_rotated: int, width: int, m: int) -> list[int]:
    """The new places of the K coordinates: rotating ones in every m-th pair, the others in the last pairs."""
    n_pairs, n_others, half = n_rotated // 2, K - n_rotated, width // 2
    first = [i * m for i in range(n_pairs)]
    upper = range(width - n_others // 2, width)
    lower = range(half - (n_others - len(upper)), half)
    return [*first, *(half + place for place in first), *lower, *upper]


def _changed(config: DecoderConfig, **knobs: Any) -> DecoderConfig:
    return DecoderConfig.model_validate({**config.model_dump(), **knobs})
