"""The whole decoder for one sequence, from the loops beside this file: the executable specification.

`weights` maps the names of the model's parameters to float64 arrays. A bias that is not there is zero, and so is
no difference from the formula with a bias.
"""

import math

import numpy as np

from reference import feed_forward as ff
from reference import norms, positions
from reference.attention import attention, linear, linear_attention, multi_head_attention

ACTIVATIONS = {"relu": ff.relu, "gelu": ff.gelu, "gelu_tanh": ff.gelu_tanh, "relu_squared": ff.relu_squared}
GATES = {"swiglu": ff.silu, "geglu_tanh": ff.gelu_tanh}


def decoder(tokens, config, weights):
    """Logits (T, V) of one sequence of token ids, for any DecoderConfig."""
    x = embed(tokens, config, weights)
    for layer in range(config.n_layers):
        _, x = block(x, config, weights, f"blocks.{layer}")
    if config.norm_placement != "post":
        x = norm(x, config, weights, "final_norm")
    return unembed(x, config, weights)


def embed(tokens, config, weights):
    x = np.array([weights["embeddings.embedding_VD"][token] for token in tokens])
    if config.position.type == "sinusoidal":
        x += positions.sinusoidal(len(tokens), config.d_model)
    if config.position.type == "learned":
        x += weights["positions.positions_TD"][: len(tokens)]
    return x


def unembed(x, config, weights):
    name = "embeddings.embedding_VD" if config.tied_embeddings else "embeddings.unembedding_VD"
    logits = linear(x, weights[name], np.zeros(len(weights[name])))
    if config.logit_soft_cap is None:
        return logits
    cap = config.logit_soft_cap
    return np.array([[cap * math.tanh(logit / cap) for logit in row] for row in logits])


def block(x, config, weights, name):
    """The stream after attention, and after the feed-forward layer."""
    attended = residual(x, x, config, weights, f"{name}.attention", attention_sublayer)
    read = x if config.norm_placement == "parallel" else attended
    return attended, residual(attended, read, config, weights, f"{name}.feed_forward", feed_forward_sublayer)


def residual(x, read, config, weights, name, sublayer):
    if config.norm_placement == "post":
        return norm(x + sublayer(read, config, weights, f"{name}.sublayer"), config, weights, f"{name}.norm")
    if config.norm_placement == "both":
        y = sublayer(norm(read, config, weights, f"{name}.norm"), config, weights, f"{name}.sublayer")
        return x + norm(y, config, weights, f"{name}.output_norm")
    if config.norm_placement == "output":
        return x + norm(sublayer(read, config, weights, f"{name}.sublayer"), config, weights, f"{name}.norm")
    return x + sublayer(norm(read, config, weights, f"{name}.norm"), config, weights, f"{name}.sublayer")


def norm(x, config, weights, name):
    gain = weights[f"{name}.weight"]
    if config.norm == "rms_norm":
        return norms.rms_norm(x, gain, config.norm_epsilon)
    return norms.layer_norm(x, gain, bias(weights, name, gain), config.norm_epsilon)


def attention_sublayer(x, config, weights, name):
    layer = int(name.split(".")[1])
    window = (
        None if layer in getattr(config.attention, "full_layers", ()) else getattr(config.attention, "window", None)
    )

    def rotate(head):
        if config.position.type == "rope" and layer not in without_rotation(config):
            rotated = int(config.position.rotated_fraction * len(head[0]))
            if window and config.position.base_in_windows:
                return positions.rotate_first(rotated, head, 0, config.position.base_in_windows)
            return positions.rotate_first(rotated, head, 0, config.position.base, config.position.stretch)
        return head

    def of_all_heads(x, which):
        return norm(x, config, weights, f"{name}.{which}_norm.norm") if config.qk_norm == "all_heads" else x

    def attend(q, k, v):
        if config.qk_norm is True:
            q = norm(q, config, weights, f"{name}.query_norm")
            k = norm(k, config, weights, f"{name}.key_norm")
        if config.attention == "linear":
            return linear_attention(q, k, v, rotate, rotate)
        return attention(rotate(q), rotate(k), v, window=window, cap=config.attention_soft_cap)

    return multi_head_attention(
        x,
        n_heads=config.n_heads,
        n_kv_heads=config.n_kv_heads or config.n_heads,
        attend=attend,
        before_heads=of_all_heads,
        **matrices(weights, name, "Q", "K", "V", "O"),
    )


def without_rotation(config):
    last = [config.n_layers - 1 - i for i in range(config.position.unrotated_last_layers)]
    return [*last, *config.position.unrotated_layers]


def feed_forward_sublayer(x, config, weights, name):
    if config.activation in GATES:
        return ff.gated(x, GATES[config.activation], **matrices(weights, name, "gate", "1", "2"))
    return ff.feed_forward(x, ACTIVATIONS[config.activation], **matrices(weights, name, "1", "2"))


def matrices(weights, name, *subscripts):
    """W_s and b_s for each subscript s."""
    found = {}
    for subscript in subscripts:
        found[f"W_{subscript}"] = weights[f"{name}.W_{subscript}.weight"]
        found[f"b_{subscript}"] = bias(weights, f"{name}.W_{subscript}", found[f"W_{subscript}"])
    return found


def bias(weights, name, weight):
    return weights.get(f"{name}.bias", np.zeros(len(weight)))
