"""Three models on 8, 64 and 1,024 GPUs, on paper: memory of a GPU and scaling efficiency in each of five ways.

    python scripts/simulate_devices.py

GPT-2 small as its config trains it, and the shapes and the batch of Llama 2 (Touvron et al. 2023: 4 million tokens).
`scripts/many_devices.py CONFIG --devices N` prints one of these cases in full. Last, a case that others have measured.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from devices_on_paper import Update, update_on_one_device
from many_devices import devices_report, devices_table, gpu, gpus
from results import parser, print_table, record

from pellucid.config.load import load_run_config
from pellucid.runs.cost_of_run import vocab_size_of
from pellucid.runtime.precision import resolve_precision

LLAMA = [
    "model.position={type: rope}",
    "model.norm=rms_norm",
    "model.activation=swiglu",
    "model.bias=false",
    "model.tied_embeddings=false",
]
LLAMA_2 = [
    *LLAMA,
    "tokenizer.vocab_size=32000",
    "model.context_length=4096",
    "train.batch_size=1",
    "train.gradient_accumulation_steps=1024",
    "train.gradient_checkpointing=block",
]
LLAMA_3_8B = [
    *LLAMA,
    "tokenizer.vocab_size=128256",
    "model.context_length=8192",
    *("model.d_model=4096", "model.n_layers=32", "model.n_heads=32", "model.n_kv_heads=8", "model.d_ff=14336"),
    "train.batch_size=2",
]
MODELS = {
    "124 M": [],
    "7 B": [*LLAMA_2, "model.d_model=4096", "model.n_layers=32", "model.n_heads=32", "model.d_ff=11008"],
    "70 B": [
        *LLAMA_2,
        *("model.d_model=8192", "model.n_layers=80", "model.n_heads=64", "model.n_kv_heads=8", "model.d_ff=28672"),
    ],
}
WAYS = ("ddp", "fsdp", "tp", "pp", "tp+pp")
IN_FULL = ("70 B", 64)
PRECISION = resolve_precision("cpu", "bf16")
GPU = gpu(989, PRECISION.dtype)


def main() -> None:
    options = parser(__doc__).parse_args()
    memory, efficiency, in_full = {}, {}, ""
    for name, overrides in MODELS.items():
        update = update_of(overrides)
        for n in (8, 64, 1024):
            report = devices_report(update, gpus(n, 8, 40), GPU)
            case = f"{name}, {n:,} GPUs"
            memory[case] = {way: _gigabytes(report[way]) for way in WAYS}
            efficiency[case] = {way: _percent(report[way]) for way in WAYS}
            if (name, n) == IN_FULL:
                in_full = devices_table(update, gpus(n, 8, 40), GPU)
    measured_by_others = {}
    for n in (8, 128):
        update = update_of([*LLAMA_3_8B, f"train.gradient_accumulation_steps={n}"])
        fsdp = devices_report(update, gpus(n, 8, 40), GPU)["fsdp"]
        measured_by_others[f"{n} GPUs"] = {"tokens per second and GPU": fsdp["tokens_per_second"] / n}
    print_table("memory of a GPU (GB)", memory)
    print_table("scaling efficiency (%)", efficiency)
    print_table("Llama 3.1 8B, fsdp", measured_by_others)
    print(f"\n{in_full}")
    if options.record:
        figures = {"memory": memory, "efficiency": efficiency, "in full": in_full.splitlines()}
        record("devices", {**figures, "Llama 3.1 8B": measured_by_others}, ["gpt2_124m"], "on paper", "bf16")


def update_of(overrides: list[str]) -> Update:
    config = load_run_config(Path("gpt2_124m"), overrides)
    return update_on_one_device(config, vocab_size_of(config), PRECISION, GPU)


def _gigabytes(way: dict[str, Any] | None) -> float | str:
    return "–" if way is None else way["memory_bytes"]["total"] / 1e9


def _percent(way: dict[str, Any] | None) -> float | str:
    if way is None:
        return "–"
    return 100 * way["scaling_efficiency"] if way["fits"] else "too large"


if __name__ == "__main__":
    main()
