"""Knobs of the model: its type, its size, and one choice along each axis of its design (`model/`)."""

from collections.abc import Iterable
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field

from pellucid.config.base import BrokenRule, Rule, Section, list_of_one

Layers = Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(strict=False)]


class SinusoidalConfig(Section):
    """Fixed sines and cosines added to the embedding (Vaswani et al. 2017)."""

    type: Literal["sinusoidal"]


class StretchConfig(Section):
    """Slow clocks run slower, for texts longer than those of training (Llama 3.1, YaRN; equations 49 and 55)."""

    factor: float = Field(ge=1, description="how many times slower the slowest clocks turn")
    trained_length: int = Field(ge=1, description="context length of the training before")
    slow_turns: float = Field(1.0, gt=0, description="clocks with fewer turns in it are slowed by the whole factor")
    fast_turns: float = Field(4.0, gt=0, description="clocks with more turns in it stay as they are")
    linear_in: Literal["turns", "clocks"] = Field("turns", description="how those between change; YaRN: clock by clock")
    attention_factor: float = Field(1.0, gt=0, description="queries and keys grow by it; YaRN: 0.1 ln(factor) + 1")

    def _rules(self) -> Iterable[Rule]:
        wrong = f"{self.slow_turns:g} is not below fast_turns {self.fast_turns:g}"
        yield self.slow_turns >= self.fast_turns, "slow_turns fast_turns", wrong, "choose a smaller number"


class RotaryConfig(Section):
    """Queries and keys rotated by their position (Su et al. 2021)."""

    type: Literal["rope"]
    base: float = Field(10_000.0, gt=1, description="longest wavelength, in positions / 2 pi")
    rotated_fraction: float = Field(1.0, gt=0, le=1, description="share of a head that rotates: its first coordinates")
    unrotated_last_layers: int = Field(0, ge=0, description="last layers without rotation: they see content alone")
    unrotated_layers: Layers = Field((), description="further layers without rotation, counted from 0")
    stretch: StretchConfig | None = Field(None, description="slower clocks for longer texts; null: as they are")
    base_in_windows: float | None = Field(None, gt=1, description="that in layers with a window, never stretched")

    def rotated_width(self, head_width: int) -> int:
        """The number of coordinates of a head that are rotated."""
        return int(self.rotated_fraction * head_width)

    def unrotated(self, n_layers: int) -> list[int]:
        """All layers without rotation, counted from 0."""
        return [n for n in range(n_layers) if n >= n_layers - self.unrotated_last_layers or n in self.unrotated_layers]


class LearnedConfig(Section):
    """A learned vector per position added to the embedding (GPT-2)."""

    type: Literal["learned"]


class NoPositionConfig(Section):
    """No positions: the causal mask alone tells the order."""

    type: Literal["none"]


PositionConfig = Annotated[
    SinusoidalConfig | RotaryConfig | LearnedConfig | NoPositionConfig, Field(discriminator="type")
]


class SlidingWindowConfig(Section):
    """Softmax attention to the last tokens only (Mistral 7B), in all layers or in most of them (Gemma 2)."""

    type: Literal["sliding_window"]
    window: int = Field(ge=1, description="tokens that a position sees in each layer, itself included")
    full_layers: Layers = Field((), description="layers without a window, counted from 0: they see all tokens before")


AttentionWord = Literal["explicit", "fused", "linear"]


def word_or_section(attention: Any) -> Any:
    """Check that an attention without knobs is a word and one with knobs a section."""
    if attention == "sliding_window":
        raise BrokenRule("", "a sliding window needs its width", "write {type: sliding_window, window: 64}")
    if isinstance(attention, dict) and attention.get("type") in get_args(AttentionWord):
        word = attention["type"]
        raise BrokenRule("", f"{word!r} has no knobs", f"write the word alone, as `attention: {word}`")
    return attention


# A second kind with knobs goes beside it as in PositionConfig, with a discriminator: errors then name the right one.
AttentionConfig = Annotated[AttentionWord | SlidingWindowConfig, BeforeValidator(word_or_section)]


class DenseConfig(Section):
    """One feed-forward layer for all tokens."""

    type: Literal["dense"]


class ExpertsConfig(Section):
    """A mixture of experts: each token is sent to `top_k` of them, and to every shared one (equation 40)."""

    type: Literal["moe"]
    n_experts: int = Field(8, ge=2, description="feed-forward layers to choose from, each d_ff wide")
    top_k: int = Field(2, ge=1, description="number of experts for each token")
    load_balance_weight: float = Field(0.01, ge=0, description="weight of the balance loss E sum_i f_i P_i")
    shared_experts: int = Field(0, ge=0, description="further experts, for every token")

    def _rules(self) -> Iterable[Rule]:
        wrong = f"a token cannot ask {self.top_k} of {self.n_experts} experts"
        yield self.top_k > self.n_experts, "top_k n_experts", wrong, "choose at most n_experts"


FeedForwardConfig = Annotated[DenseConfig | ExpertsConfig, Field(discriminator="type")]


BiasPlace = Literal["norms", "query_key_norms", "queries_keys_values", "attention_output", "feed_forward"]
BIAS_PLACES: tuple[BiasPlace, ...] = get_args(BiasPlace)
_Places = Annotated[tuple[BiasPlace, ...], Field(strict=False)]
BiasPlaces = Annotated[_Places, BeforeValidator(list_of_one, json_schema_input_type=BiasPlace | _Places)]


class DecoderConfig(Section):
    """A decoder-only transformer."""

    type: Literal["decoder"] = "decoder"
    context_length: int = Field(ge=1, description="tokens that the model sees at most")
    d_model: int = Field(ge=1, description="width of the residual stream")
    n_layers: int = Field(ge=1, description="number of blocks")
    n_heads: int = Field(ge=1, description="query heads per attention")
    n_kv_heads: int | None = Field(None, ge=1, description="key/value heads, which query heads share; null: n_heads")
    head_width: int | None = Field(None, ge=1, description="coordinates of a head; null: d_model / n_heads")
    d_ff: int | None = Field(None, ge=1, description="width of the feed-forward layer; null: 4 d_model")
    position: PositionConfig = Field(RotaryConfig(type="rope"), description="how the model knows order")
    norm: Literal["layer_norm", "rms_norm"] = "layer_norm"
    norm_epsilon: float = Field(1e-5, gt=0, description="keeps norms from dividing by zero")
    norm_placement: Literal["pre", "post", "parallel", "output", "both"] = Field(
        "pre",
        description="pre: x + f(norm(x)); post: norm(x + f(x)); output: x + norm(f(x)); both: pre and output; "
        "parallel: pre, both sublayers reading the same x",
    )
    activation: Literal["relu", "gelu", "gelu_tanh", "relu_squared", "swiglu", "geglu_tanh"] = Field(
        "gelu", description="gelu_tanh: GPT-2's approximation of GELU; swiglu and geglu_tanh: as a gate"
    )
    feed_forward: FeedForwardConfig = Field(DenseConfig(type="dense"), description="one layer for all, or experts")
    tied_embeddings: bool = Field(True, description="unembed with the transpose of the embedding")
    bias: bool | BiasPlaces = Field(
        False, description="biases in the linear layers and LayerNorm; or a list of where: [queries_keys_values]"
    )
    dropout: float = Field(0.0, ge=0, lt=1, description="share of activations dropped in training")
    qk_norm: bool | Literal["all_heads"] = Field(
        False, description="normalise each head's queries and keys, as `norm` says; all_heads: all heads' as one"
    )
    attention_soft_cap: float | None = Field(None, gt=0, description="squash scores as logit_soft_cap does logits")
    logit_soft_cap: float | None = Field(None, gt=0, description="squash logits to +-cap by cap*tanh(z/cap)")
    embedding_std: float | None = Field(
        None,
        gt=0,
        description="spread of the first token embeddings; larger keeps tokens apart, so that they are sooner "
        "copied; default: 0.02, or 1 / sqrt(d_model) beside sinusoidal positions",
    )
    zero_init_projections: bool = Field(False, description="output projections start at zero, blocks as identity")
    copying_init: bool = Field(
        False,
        description="the last attention starts by adding half of what it attends to, also beside "
        "zero_init_projections; with tied embeddings that makes these tokens likelier",
    )
    attention: AttentionConfig = Field(
        "explicit",
        description="explicit: the equation, step by step; fused: the same by one PyTorch kernel, for long texts and "
        "GPUs; linear: without a softmax, so that a state of constant size stands for the past",
    )

    attention_mask: Literal["causal", "none"] = Field("causal", description="none: also what comes after is seen")

    def has_bias(self, place: BiasPlace) -> bool:
        return self.bias if isinstance(self.bias, bool) else place in self.bias

    @property
    def experts(self) -> ExpertsConfig | None:
        """The experts that `feed_forward` describes; None: it is one layer for all tokens."""
        return self.feed_forward if isinstance(self.feed_forward, ExpertsConfig) else None

    @property
    def window(self) -> int | None:
        """Tokens that a position sees in layers with a window; None: no layer has one."""
        return self.attention.window if isinstance(self.attention, SlidingWindowConfig) else None

    def window_in(self, layer: int) -> int | None:
        """Tokens that a position sees in this layer; None: all before it."""
        return None if layer in getattr(self.attention, "full_layers", ()) else self.window

    @property
    def attends_by_softmax(self) -> bool:
        """Whether its attention is equation 7, to all or in a window: the kinds that other programs know."""
        return isinstance(self.attention, SlidingWindowConfig) or self.attention in ("explicit", "fused")

    def _rules(self) -> Iterable[Rule]:
        d_model, n_heads, n_kv_heads = self.d_model, self.n_heads, self.n_kv_heads or 1
        uneven, wrong = not self.head_width and d_model % n_heads, f"{d_model} is not a multiple of n_heads {n_heads}"
        yield uneven, "d_model n_heads head_width", wrong, "choose a multiple, or set head_width"
        wrong = f"{n_heads} is not a multiple of n_kv_heads {n_kv_heads}"
        yield n_heads % n_kv_heads, "n_heads n_kv_heads", wrong, "choose n_kv_heads as a divisor of n_heads"
        for part, layers in ("attention", "full_layers"), ("position", "unrotated_layers"):
            last = max(getattr(getattr(self, part), layers, ()), default=0)
            yield last >= self.n_layers, f"{part}.{layers}", f"there is no layer {last}", "count them from 0"
        yield (
            self.attention_soft_cap is not None and self.attention in ("fused", "linear"),
            "attention_soft_cap attention",
            f"{self.attention} attention cannot cap its scores",
            "leave it out, or set attention: explicit",
        )
        d_head = self.head_width or d_model // n_heads
        if self.copying_init:
            wrong = f"{n_kv_heads} value heads are too few to copy all that a token is, {n_heads} are needed"
            is_shared, fix = self.n_kv_heads not in (None, n_heads), "leave out n_kv_heads, or copying_init"
            yield is_shared, "copying_init n_kv_heads", wrong, fix
            wrong = f"{n_heads} heads of {d_head} coordinates cannot hold all {d_model} of a token"
            fix = "leave out head_width, or copying_init"
            yield n_heads * d_head < d_model, "copying_init head_width", wrong, fix
        if isinstance(self.position, RotaryConfig):
            share, rotated = self.position.rotated_fraction, self.position.rotated_width(d_head)
            is_odd, wrong = rotated % 2 and share == 1, f"RoPE rotates pairs, but a head has {d_head} coordinates"
            yield is_odd and self.head_width is not None, "head_width", wrong, "choose an even number"
            yield is_odd, "d_model n_heads", wrong, "choose d_model / n_heads even"
            wrong = f"RoPE rotates pairs, but {share:g} of a head's {d_head} coordinates is {rotated}"
            yield rotated % 2 or not rotated, "position.rotated_fraction", wrong, "choose a share that makes it even"
            wrong, fix = "no layer has a window", "leave it out, or set attention: {type: sliding_window, window: 64}"
            yield self.position.base_in_windows and not self.window, "position.base_in_windows", wrong, fix
        if isinstance(self.position, SinusoidalConfig):
            yield d_model % 2, "d_model", f"sinusoidal positions need an even width, not {d_model}", "add one"


ONLY_FOR_TRAINING = {"dropout", "embedding_std", "zero_init_projections", "copying_init"}  # knobs of a decoder


class BigramConfig(Section):
    """A table: the logits of the next token depend on the last one alone (equation 33)."""

    type: Literal["bigram"]
    context_length: int = Field(ge=1, description="tokens that a training row has at most")
    counted: bool = Field(
        False, description="start with how often each token follows each other in the training text, instead of zeros"
    )


class MLPConfig(Section):
    """A hidden layer over the last few tokens, side by side (Bengio et al. 2003; equation 34)."""

    type: Literal["mlp"]
    context_length: int = Field(ge=1, description="tokens that a training row has at most")
    window: int = Field(ge=1, description="tokens that the model sees: the last ones")
    d_model: int = Field(ge=1, description="width of an embedding")
    d_ff: int | None = Field(None, ge=1, description="width of the hidden layer; null: 4 d_model")
    activation: Literal["tanh", "relu"] = "tanh"
    tied_embeddings: bool = Field(True, description="unembed with the transpose of the embedding")

    def _rules(self) -> Iterable[Rule]:
        wrong = f"{self.window} tokens are more than a training row has, context_length {self.context_length}"
        yield self.window > self.context_length, "window context_length", wrong, "see fewer, or lengthen the rows"


class RecurrentConfig(Section):
    """A recurrent network: Elman's (rnn), an LSTM or a GRU (equations 35 to 37)."""

    type: Literal["rnn", "lstm", "gru"]
    context_length: int = Field(ge=1, description="tokens that a training row has at most")
    d_model: int = Field(ge=1, description="width of the embedding and of each layer's hidden state")
    n_layers: int = Field(1, ge=1, description="recurrent layers, one on top of the other")
    tied_embeddings: bool = Field(True, description="unembed with the transpose of the embedding")
    dropout: float = Field(0.0, ge=0, lt=1, description="share of a layer's outputs dropped in training")


ModelConfig = Annotated[DecoderConfig | BigramConfig | MLPConfig | RecurrentConfig, Field(discriminator="type")]


def with_type(model: Any) -> Any:
    """A model section without a type describes a decoder."""
    return {"type": "decoder", **model} if isinstance(model, dict) else model
