"""The knobs on which the logits of a trained model depend, and the check that an export loses none of them.

A knob that is not written is refused by name, even if it is newer than the export.
"""

from collections.abc import Mapping
from typing import Any

from pellucid.config.base import flat
from pellucid.config.model import ONLY_FOR_TRAINING, DecoderConfig, RotaryConfig
from pellucid.errors import ConfigError, Fix
from pellucid.model.build import head_width

SHOWN_BY_TENSORS = {"type", "bias"}  # each tensor must have a place in the export, or be zeros


def knobs_of(config: DecoderConfig) -> dict[str, Any]:
    """The knobs of a trained model's logits, as dotted names, with defaults written out."""
    sections = config.model_dump(exclude=ONLY_FOR_TRAINING | SHOWN_BY_TENSORS)
    knobs = {name.removesuffix(".type"): value for name, value in flat(sections).items()}
    knobs |= {"n_kv_heads": config.n_kv_heads or config.n_heads, "head_width": head_width(config)}
    knobs |= {"d_ff": config.d_ff or 4 * config.d_model}
    if isinstance(config.position, RotaryConfig):  # two ways to say it
        knobs.pop("position.unrotated_last_layers")
        knobs["position.unrotated_layers"] = config.position.unrotated(config.n_layers)
        if config.position.stretch is None and config.position.base_in_windows == config.position.base:
            knobs["position.base_in_windows"] = None
    hides_nothing = (config.window or 0) >= config.context_length and not knobs.get("position.base_in_windows")
    if hides_nothing or knobs["attention"] == "fused":  # the same equation
        knobs["attention"] = "explicit"
        knobs.pop("attention.window", None)
        knobs.pop("attention.full_layers", None)
    knobs.pop("feed_forward.load_balance_weight", None)  # of the loss
    return knobs


def require_all_written(config: DecoderConfig, written: Mapping[str, Any], by: str, fix: str | Fix) -> None:
    """Raise ConfigError, naming the knob, unless the knobs that an export has written are those of the decoder."""
    for knob, value in knobs_of(config).items():
        if knob not in written or written[knob] != value:
            raise ConfigError(f"model.{knob}", f"{by} has no place for {value}", fix)
