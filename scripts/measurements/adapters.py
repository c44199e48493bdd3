"""The cost of fewer bits, and how near an adapter comes to training everything.

Remakes: quantization, quantization by skill, adapters
Takes: a quarter of an hour
Needs: checkpoints/fables

Takes the trained demo (`make demo`), writes it in fewer bits, and scores each. Then it teaches the demo's model to do
as it is told: all of its weights, an adapter of rank 8, and the same adapter over weights of four bits.
"""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from results import ROOT, Entry
from runs import evaluation, pellucid

from pellucid.adapters.build import adapt
from pellucid.checkpoint.run_directory import find_step_directory
from pellucid.config.load import load_run_config
from pellucid.model.build import build_model
from pellucid.tokenizer import Tokenizer

FORMATS = ("int8", "nf4", "nf4-double")
TUNED = {
    "all weights": "instructions_sft",
    "LoRA, rank 8": "instructions_lora",
    "QLoRA, rank 8 over nf4-double": "instructions_qlora",
}
SKILLS = ("choice", "fact", "count", "recall", "spelling", "agreement")
DEMO, LATEST = "checkpoints/fables", ("--checkpoint", "latest")
Rows = dict[str, dict[str, float]]


def measure(demo: Path = ROOT / DEMO) -> Iterator[Entry]:
    shutil.copytree(demo, DEMO)  # where the adapters look for their base
    exact = evaluation(DEMO, *LATEST)
    in_format = {"fp32": ({"bits_after": 32.0, "model_bits_after": 32.0}, exact)}
    in_format |= {name: quantized(name) for name in FORMATS}
    tuned = {name: tuning(config) for name, config in TUNED.items()}
    by_skill = {
        name: {skill: scores["skills"][skill]["excess_nats_per_document"] for skill in SKILLS}
        for name, (_, scores) in in_format.items()
    }
    yield Entry("quantization", {name: costs(*measured, exact) for name, measured in in_format.items()}, ["fables"])
    yield Entry("quantization by skill", by_skill, ["fables"])
    yield Entry("adapters", beside_all_weights(tuned), ["fables", *TUNED.values()])


def quantized(name: str) -> tuple[dict[str, float], dict[str, Any]]:
    """The demo's newest step in this format: its bits, and its scores."""
    run = f"{DEMO}-{name}"
    bits = json.loads(pellucid("quantize", DEMO, *LATEST, "--to", name, "--out", run, "--json"))
    return bits, evaluation(run)


def costs(bits: dict[str, float], scores: dict[str, Any], exact: dict[str, Any]) -> dict[str, float]:
    return {
        "bits per weight": bits["bits_after"],
        "of the whole model": bits["model_bits_after"],
        "loss": scores["loss_nats_per_token"],
        "excess": scores["excess_nats_per_token"],
        "cost (% of the loss)": 100 * (scores["loss_nats_per_token"] / exact["loss_nats_per_token"] - 1),
    }


def tuning(name: str) -> dict[str, float]:
    """Trained as its config says: how many numbers learn, the loss on instructions, and how far above the floor.

    What it has forgotten shows on plain fables: those that the demo was judged by.
    """
    run = Path("checkpoints", name)
    pellucid("train", ROOT / f"configs/{name}.yaml")
    scores, on_fables = (evaluation(run, *LATEST, *on) for on in ((), ("--on", DEMO)))
    step = find_step_directory(run, "latest")
    return {
        **sizes(step),
        "checkpoint (kB)": (step / "model.safetensors").stat().st_size / 1e3,
        "loss": scores["loss_nats_per_token"],
        "excess (% of the floor)": 100 * scores["excess_nats_per_token"] / scores["floor_nats_per_token"],
        "obeys (%)": 100 * scores["answers"]["instructions"]["all"]["obeys"]["share"],
        "excess on fables (% of the floor)": 100 * on_fables["excess_fraction"],
    }


def sizes(step: Path) -> dict[str, float]:
    """How many parameters learn, of those that a model without an adapter has."""
    config = load_run_config(step.parent / "config.yaml")
    model = build_model(config.model, Tokenizer.load(step / "tokenizer.json").vocab_size)
    n_weights = sum(parameter.numel() for parameter in model.parameters())
    adapt(model, config.quantization, config.adapter)
    n_trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    return {"trained parameters": n_trained, "of all (%)": 100 * n_trained / n_weights}


def beside_all_weights(tuned: Rows) -> Rows:
    of_all = tuned["all weights"]["loss"]
    return {name: {**row, "more than all weights (%)": 100 * (row["loss"] / of_all - 1)} for name, row in tuned.items()}
