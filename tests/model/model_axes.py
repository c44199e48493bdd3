"""Every combination of the model's axes, as tiny configs: what the tests of the whole model run over.

A new choice of the decoder adds its line to AXES, and its loop to tests/reference; a new kind of model to family.py.
"""

import random
from contextlib import contextmanager
from itertools import combinations, product

import torch
from hypothesis import strategies as st

from pellucid.config.model import DecoderConfig
from pellucid.model.build import build_model

VOCAB_SIZE = 11

STRETCH = {"factor": 3.0, "trained_length": 6, "slow_turns": 0.005, "fast_turns": 1.2}  # slows all clocks of tiny heads

YARN = {"factor": 3.0, "trained_length": 6, "slow_turns": 0.001, "fast_turns": 0.5}  # slows all clocks but the first
YARN |= {"linear_in": "clocks", "attention_factor": 1.2}

MIXED = {"type": "sliding_window", "window": 3, "full_layers": [1]}

AXES = {
    "position": [
        {"type": "sinusoidal"},
        {"type": "rope"},
        {"type": "rope", "rotated_fraction": 0.5, "unrotated_layers": [0]},
        {"type": "rope", "unrotated_last_layers": 1, "stretch": YARN},
        {"type": "learned"},
        {"type": "none"},
    ],
    "norm": ["layer_norm", "rms_norm"],
    "norm_placement": ["pre", "post", "parallel", "output", "both"],
    "activation": ["relu", "gelu", "gelu_tanh", "relu_squared", "swiglu", "geglu_tanh"],
    "tied_embeddings": [True, False],
    "bias": [True, False],
    "qk_norm": [True, False, "all_heads"],
    "n_kv_heads": [2, 1],
    "logit_soft_cap": [None, 3.0],
    "zero_init_projections": [True, False],
    "attention": ["explicit", "linear", {"type": "sliding_window", "window": 4}],
}

NUMBERS = {"norm_epsilon": [1e-5, 1e-2], "head_width": [None, 8]}  # no choices of design: not combined with everything


def tiny_config(**choices):
    sizes = {"context_length": 8, "d_model": 8, "n_layers": 2, "n_heads": 2, "d_ff": 12}
    return DecoderConfig.model_validate({**sizes, **choices})


def all_combinations(**fixed):
    """A config for each combination of the axes; an axis given here keeps to the values given."""
    axes = {**AXES, **fixed}
    for values in product(*axes.values()):
        yield tiny_config(**dict(zip(axes, values, strict=True)))


def covering_combinations(strength=2, **fixed):
    """Few of them, in which any two axes meet with each of their values: a covering array of strength 2, or more."""
    axes = {**AXES, **NUMBERS, **fixed}
    rng = random.Random(0)
    choices = [[(axis, i) for i in range(len(values))] for axis, values in axes.items()]
    missing = {tuple_ for some_axes in combinations(choices, strength) for tuple_ in product(*some_axes)}
    while missing:
        wanted = dict(min(missing))
        rows = [{**dict(map(rng.choice, choices)), **wanted} for _ in range(30)]
        best = max(rows, key=lambda row: len(missing.intersection(combinations(row.items(), strength))))
        missing.difference_update(combinations(best.items(), strength))
        yield tiny_config(**{axis: axes[axis][i] for axis, i in best.items()})


tiny_configs = st.fixed_dictionaries({axis: st.sampled_from(AXES[axis]) for axis in AXES}).map(
    lambda choices: tiny_config(**choices)
)


def build_away_from_zero(config, vocab_size=VOCAB_SIZE):
    """The built model with every parameter moved at random: no part is silent, not even what starts at zero."""
    torch.default_generator.manual_seed(0)  # not torch.manual_seed, which looks for every accelerator each time
    model = build_model(config, vocab_size)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return model


@contextmanager
def float64():
    """New tensors, the model's tables among them, in float64."""
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)
