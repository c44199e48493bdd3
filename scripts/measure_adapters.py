"""What fewer bits cost, and how near an adapter comes to training everything.

    python scripts/measure_adapters.py --record

Takes the trained demo (`make demo`), writes it in fewer bits, and scores each. Then it teaches the demo's model to do
as it is told: all of its weights, an adapter of rank 8, and the same adapter over weights of four bits. Works in a
folder of its own. About a quarter of an hour on four cores.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from results import ROOT, parser, print_table, record

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


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--demo", type=Path, default=ROOT / "checkpoints/fables", help="the trained run")
    arguments.add_argument("--folder", type=Path, help="work here, and keep what is made")
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        if not (folder / "checkpoints/fables").exists():
            shutil.copytree(options.demo, folder / "checkpoints/fables")
        os.chdir(folder)  # where the adapters look for their base
        quantization, by_skill = measure_formats()
        tuning = {name: measure_tuning(config) for name, config in TUNED.items()}
        os.chdir(ROOT)
    of_all = tuning["all weights"]["loss"]
    for figures in tuning.values():
        figures["more than all weights (%)"] = 100 * (figures["loss"] / of_all - 1)
    print_table("quantization", quantization)
    print_table("excess by skill, nats per fable", by_skill)
    print_table("fine-tuning", tuning)
    if options.record:
        record("quantization", quantization, ["fables"])
        record("quantization by skill", by_skill, ["fables"])
        record("adapters", tuning, ["fables", *TUNED.values()])


def measure_formats() -> tuple[dict[str, Any], dict[str, Any]]:
    """The demo's newest step in each format: bits for each weight, loss and excess; and the excess of each skill."""
    figures, by_skill = {}, {}
    exact = scores("checkpoints/fables", "--checkpoint", "latest")
    for name in ("fp32", *FORMATS):
        found, bits = exact, {"bits_after": 32.0, "model_bits_after": 32.0}
        if name != "fp32":
            run = f"checkpoints/fables-{name}"
            shutil.rmtree(Path(run), ignore_errors=True)
            quantize = ("quantize", "checkpoints/fables", "--checkpoint", "latest", "--to", name, "--out", run)
            bits = json.loads(pellucid(*quantize, "--json"))
            found = scores(run)
        loss = found["loss_nats_per_token"]
        figures[name] = {
            "bits per weight": bits["bits_after"],
            "of the whole model": bits["model_bits_after"],
            "loss": loss,
            "excess": found["excess_nats_per_token"],
            "cost (% of the loss)": 100 * (loss / exact["loss_nats_per_token"] - 1),
        }
        by_skill[name] = {skill: found["skills"][skill]["excess_nats_per_document"] for skill in SKILLS}
    return figures, by_skill


def measure_tuning(name: str) -> dict[str, Any]:
    """Trained as its config says: how many numbers learn, the loss on instructions, and how far above the floor.

    What it has forgotten shows on plain fables: those that the demo was judged by.
    """
    run = f"checkpoints/{name}"
    if not Path(run, "loss.png").exists():  # which a run draws when it ends
        pellucid("train", str(ROOT / f"configs/{name}.yaml"), "--resume")
    found = scores(run, "--checkpoint", "latest")
    config = load_run_config(Path(run) / "config.yaml")
    step = find_step_directory(Path(run), "latest")
    tokenizer = Tokenizer.load(step / "tokenizer.json")
    model = build_model(config.model, tokenizer.vocab_size)
    n_weights = sum(parameter.numel() for parameter in model.parameters())
    adapt(model, config)
    n_trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    return {
        "trained parameters": n_trained,
        "of all (%)": 100 * n_trained / n_weights,
        "checkpoint (kB)": (step / "model.safetensors").stat().st_size / 1e3,
        "loss": found["loss_nats_per_token"],
        "excess (% of the floor)": 100 * found["excess_nats_per_token"] / found["floor_nats_per_token"],
        "obeys (%)": 100 * found["answers"]["instructions"]["all"]["obeys"]["share"],
        "excess on fables (% of the floor)": 100
        * scores(run, "--checkpoint", "latest", "--on", "checkpoints/fables")["excess_fraction"],
    }


def scores(run: str, *options: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(pellucid("evaluate", run, "--json", *options))
    return found


def pellucid(*arguments: str) -> str:
    command = [sys.executable, "-m", "pellucid", *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    main()
