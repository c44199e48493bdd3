"""The diagram of a model has all of its weights, and each once; its steps have the formulas that compute them."""

import json

import pytest
from pydantic import TypeAdapter

from pellucid.config.model import ModelConfig
from pellucid.inspection.trace import trace
from pellucid.model.build import build_model

DECODER = {"type": "decoder", "context_length": 8, "d_model": 8, "n_layers": 2, "n_heads": 2}
KINDS = {
    "decoder": DECODER,
    "post-norm": DECODER | {"norm_placement": "post", "tied_embeddings": False, "position": {"type": "learned"}},
    "parallel": DECODER | {"norm_placement": "parallel", "activation": "geglu_tanh"},
    "output norm": DECODER | {"norm_placement": "output", "norm": "rms_norm", "qk_norm": "all_heads"},
    "both norms": DECODER
    | {
        "norm_placement": "both",
        "position": {"type": "rope", "base_in_windows": 100.0},
        "attention": {"type": "sliding_window", "window": 3, "full_layers": [1]},
        "attention_soft_cap": 5.0,
    },
    "wide heads": DECODER | {"head_width": 6, "n_kv_heads": 1, "qk_norm": True, "bias": True, "activation": "swiglu"},
    "experts": DECODER | {"feed_forward": {"type": "moe", "n_experts": 4, "shared_experts": 1}},
    "linear": DECODER | {"attention": "linear", "n_layers": 5},
    "window": DECODER | {"attention": {"type": "sliding_window", "window": 4}},
    "bigram": {"type": "bigram", "context_length": 8},
    "mlp": {"type": "mlp", "context_length": 8, "window": 3, "d_model": 4},
    "rnn": {"type": "rnn", "context_length": 8, "d_model": 4},
    "lstm": {"type": "lstm", "context_length": 8, "d_model": 4, "n_layers": 12},
    "gru": {"type": "gru", "context_length": 8, "d_model": 4, "tied_embeddings": False},
}
PARTS = """async (text) => {
    const { partsOf } = await import("/static/machine.js");
    return partsOf(JSON.parse(text));
}"""


@pytest.mark.parametrize("name", KINDS)
def test_the_parts_of_a_model_have_its_weights_each_once(modules, name):
    config = TypeAdapter(ModelConfig).validate_python(KINDS[name])
    model = build_model(config, 11)
    shapes = {name: list(weight.shape) for name, weight in model.named_parameters()}
    shown = {"config": config.model_dump(mode="json"), "weights": shapes, "vocab_size": 11}
    parts = modules.evaluate(PARTS, json.dumps(shown))

    leaves = [leaf for part in parts for leaf in part.get("parts", [part])]
    assert (leaves[0]["kind"], leaves[-1]["kind"]) == ("text", "next")
    assert all(leaf["says"] for leaf in leaves)
    n_weights = sum(weight.numel() for weight in model.parameters())
    assert sum(leaf.get("weights", 0) for leaf in leaves) == n_weights
    assert [leaf["layer"] for leaf in leaves if leaf["kind"] == "recurrent"] == list(
        range(getattr(config, "n_layers", 0) if name in ("rnn", "lstm", "gru") else 0)
    )


FORMULAS_OF_STEPS = """async (text) => {
    const { formulaOf } = await import("/static/equations.js");
    const { steps, config } = JSON.parse(text);
    const lines = (step) => [...formulaOf(step, config).children].map((line) => line.textContent);
    return steps.map((step) => lines(step).map((line) => line.replace(/\\s/g, "")));
}"""


@pytest.mark.parametrize("name", [name for name, config in KINDS.items() if config["type"] == "decoder"])
def test_a_step_of_a_layer_has_the_formulas_by_which_this_model_computes_it_and_no_others(modules, name):
    config = TypeAdapter(ModelConfig).validate_python(KINDS[name])
    steps = trace(build_model(config, 11), [1, 2, 3]).inside(0)
    told = [{"name": step.name, "equations": step.equations} for step in steps]
    lines = modules.evaluate(FORMULAS_OF_STEPS, json.dumps({"steps": told, "config": config.model_dump(mode="json")}))
    all_lines = [line for of_step in lines for line in of_step]
    kinds = dict.fromkeys(step.name for step in steps)
    assert all(
        of_step for step, of_step in zip(steps, lines, strict=True) if step.name not in ("x", "scores", "weights")
    )
    assert all(of_step == [] for step, of_step in zip(steps, lines, strict=True) if step.name == "x")
    assert (
        sum("pre-norm" in line for line in all_lines)
        == {"pre": 2, "parallel": 1, "post": 0, "output": 0, "both": 0}[config.norm_placement]
    )
    assert sum("post-norm" in line for line in all_lines) == 2 * (config.norm_placement == "post")
    norms = [line for line in all_lines if line.startswith("norm(x)")]
    assert len(norms) == 2
    assert all(line.endswith("+b") == (config.bias is True) for line in norms)
    assert any("b1" in line for line in all_lines) == (config.bias is True and config.activation != "swiglu")
    assert any(line.startswith("SiLU") for line in all_lines) == (config.activation == "swiglu")
    assert not any(line.startswith("ReLU") for line in all_lines)
    assert any("softmax(" in line and "qt" in line for line in all_lines) == (config.attention != "linear")
    assert any("−∞" in line for line in all_lines) == (config.attention != "linear")
    assert any("Δ" in line for line in all_lines) == (name in ("window", "both norms"))
    assert any("ρ" in line for line in all_lines) == ("shares of experts" in kinds)


CURVE = """async (given) => {
    const { drawCurve } = await import("/static/curve.js");
    const figure = document.createElement("figure");
    const chart = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    document.body.append(figure);
    figure.append(chart);
    drawCurve(chart, { level: null, unit: "nats", checkpoints: [0, 1, 2, 9].map((step) => ({ step })), ...given });
    return [...chart.querySelectorAll("circle.kept")].map((dot) => dot.getAttribute("cy"));
}"""


@pytest.mark.parametrize(
    ("training", "held"),
    [
        ([], []),
        ([[1, 3]], []),
        ([[1, 3], [2, 2], [3, 1]], []),
        ([[1, 3], [2, 2]], [[2, 2], [4, 1]]),
        ([], [[4, 1]]),
        ([[2, 1]], [[2, 1]]),
    ],
)
def test_a_checkpoint_sits_on_the_curve_where_it_was_not_measured_too(modules, training, held):
    heights = modules.evaluate(CURVE, {"training": training, "held": held})
    assert len(heights) == (4 if training or held else 0)
    assert [float(each) for each in heights] == sorted(map(float, heights))  # a loss falls, and none is NaN


NUMBERS = """async () => {
    const { exact, percent } = await import("/static/elements.js");
    return [[0, 1e-5, 0.004, -0.004, 0.5, 3.14159].map(exact), [0, 1e-4, 0.9994, 0.9998, 1 - 1e-12, 1].map(percent)];
}"""


def test_what_is_not_nothing_or_not_all_is_not_shown_as_that(modules):
    nats, shares = modules.evaluate(NUMBERS)
    assert nats == ["0.00", "<0.001", "0.004", "−0.004", "0.50", "3.14"]
    assert shares == ["0.0%", "<0.1%", "99.9%", ">99.9%", "100.0%", "100.0%"]
