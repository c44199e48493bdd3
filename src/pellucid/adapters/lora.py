"""LoRA: a large matrix stays frozen, and two small ones beside it learn the change (Hu et al. 2022).

    x ─┬─► W₀ (frozen) ──────────────────┬─► +  ─► y
       └─► A (R × I) ─► B (O × R) ─► α/R ┘

With a 4-bit matrix this is QLoRA (Dettmers et al. 2023).

Shapes: R rank, O outputs, I inputs.
"""

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import sqrt

import torch
from torch import Tensor, nn

from pellucid.adapters.quantized import QuantizedLinear, linear_layers
from pellucid.errors import ConfigError
from pellucid.model.language_model import LanguageModel


class LoRALinear(nn.Module):
    """y = W₀ x + (α/R) B A x (equation P2): only A and B are trained, R (I + O) numbers instead of I O.

    A is initialised like a linear layer's matrix and B with zeros, so that the model starts unchanged. At first only B
    has a gradient; A gets one as soon as B is not zero.
    """

    def __init__(self, base: nn.Linear | QuantizedLinear, rank: int, alpha: float) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.scale = alpha / rank
        like = next(tensor for tensor in (*base.parameters(), *base.buffers()) if tensor.is_floating_point())
        self.A_RI = nn.Parameter(like.new_empty(rank, base.in_features))
        self.B_OR = nn.Parameter(like.new_zeros(base.out_features, rank))
        nn.init.kaiming_uniform_(self.A_RI, a=sqrt(5))

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.scale * (x @ self.A_RI.T @ self.B_OR.T)  # type: ignore[no-any-return]

    @property
    def weight(self) -> Tensor:
        """W₀ + (α/R) B A (equation P3): the merged matrix."""
        return self.base.weight + self.scale * (self.B_OR @ self.A_RI)

    @property
    def bias(self) -> Tensor | None:
        return self.base.bias


def add_lora(model: nn.Module, rank: int, alpha: float, targets: Sequence[str] | None = None) -> None:
    """Freeze the model, and wrap each linear layer of these names inside its blocks in a LoRALinear.

    targets: W_Q, W_1, …; None for all. Raises ConfigError for a name that no layer has, or a rank above the shorter
    side of a matrix, where B A can already be any matrix.
    """
    layers = linear_layers(model)
    names = {name: name.rpartition(".")[2] for name in layers}
    choices = sorted(set(names.values()))
    for target in targets or ():
        if target not in choices:
            fix = f"choose among {', '.join(choices)}" if choices else "train without an adapter"
            raise ConfigError("adapter.targets", f"no linear layer inside a block is named {target!r}", fix)
    chosen = {name: layer for name, layer in layers.items() if targets is None or names[name] in targets}
    if not chosen:
        raise ConfigError("adapter.targets", "no linear layer to adapt", "name one, or train without an adapter")
    shorter_side = {name: min(layer.in_features, layer.out_features) for name, layer in chosen.items()}
    narrowest = min(shorter_side, key=lambda name: shorter_side[name])
    most = shorter_side[narrowest]
    if not 1 <= rank <= most:
        what = f"{rank} is not from 1 to {most}, the shorter side of {names[narrowest]}"
        raise ConfigError("adapter.rank", what, "choose a rank in between, or other adapter.targets")
    model.requires_grad_(False)
    for name, layer in chosen.items():
        model.set_submodule(name, LoRALinear(layer, rank, alpha))


def merge(model: nn.Module) -> dict[str, nn.Module]:
    """Replace each adapted or quantized layer by a plain linear layer of the same weights.

    So the fast forms of kernels/ and generation/ apply. Returns the replaced layers, which `unmerge` puts back.
    """
    kinds = (LoRALinear, QuantizedLinear)
    wrapped = {name: m for name, m in model.named_modules() if isinstance(m, kinds) and not name.endswith(".base")}
    for name, layer in wrapped.items():
        model.set_submodule(name, _plain(layer))
    return dict(wrapped)


def unmerge(model: nn.Module, layers: Mapping[str, nn.Module]) -> None:
    """Undo `merge` exactly: subtracting B A again would give the base only up to rounding."""
    for name, layer in layers.items():
        model.set_submodule(name, layer)


@contextmanager
def merged(model: nn.Module) -> Iterator[None]:
    """Inside, the model has only plain layers, and writes text as fast as one without an adapter."""
    layers = merge(model)
    try:
        yield
    finally:
        unmerge(model, layers)


def frozen_copy(model: LanguageModel) -> LanguageModel:
    """A frozen copy of the model, the reference; adapters are merged into its layers, for speed."""
    reference = copy.deepcopy(model)
    merge(reference)
    return reference.requires_grad_(False).eval()


@torch.no_grad()
def _plain(layer: LoRALinear | QuantizedLinear) -> nn.Linear:
    weight_OI, bias_O = layer.weight, layer.bias
    plain = nn.Linear(weight_OI.size(1), weight_OI.size(0), bias=bias_O is not None, device="meta")
    plain.weight = nn.Parameter(weight_OI)
    plain.bias = None if bias_O is None else nn.Parameter(bias_O.detach().clone())  # type: ignore[assignment]
    return plain
