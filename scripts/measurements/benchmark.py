"""Training and decoding speed, memory and start-up, beside Hugging Face `transformers` and the limits of the machine.

Remakes: peak, bandwidth, call, training, training limits, decoding, decoding limits, position, start, memory
Takes: 10 minutes
Needs: transformers (`make bench`; then `draw.py roofline` draws it)

Both train a decoder of GPT-2's design (rivals.py; 4 layers of width 128 where a row does not say otherwise) with AdamW
on the same random tokens, and write the same number of tokens with top-k 50. The two take turns; a line gives the
medians, and the median of the ratios of neighbours. A larger model, whose turns are longer, has half as many pairs.
roofline.py says what the machine could do at most. Precisions that are compared:

    default settings   Pellucid bf16 where that is faster, transformers fp32
    bf16, fp32         both in the same; bf16 by autocast
    decoding           both keep weights and cache in fp32
"""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from itertools import pairwise
from math import ceil
from pathlib import Path
from statistics import median

import torch
from measurements.rivals import (
    NEW_TOKENS,
    TOP_K,
    Shape,
    calls_of_decoding,
    calls_of_training,
    compare,
    hugging_face_decoding,
    hugging_face_training,
    pellucid_decoding,
    pellucid_trainer,
    pellucid_training,
)
from measurements.roofline import Roof, measure_roof, needs_of_decoding, needs_of_training, shares
from results import ROOT, Entry, here
from runs import in_a_process, pellucid
from timing import seconds_of, take_turns

from pellucid.generation.engine import in_step
from pellucid.generation.sampling import Sampling
from pellucid.generation.writing import Writing
from pellucid.kernels.freed_memory import keep_freed_memory
from pellucid.model.build import build_model
from pellucid.runtime.precision import Precision, resolve_precision

D256 = {"d_model": 256, "n_layers": 6, "n_heads": 4}  # with vocabulary 8,192: 7 million parameters
D384 = {"d_model": 384, "n_layers": 6, "n_heads": 6}  # 11
D576 = {"d_model": 576, "n_layers": 12, "n_heads": 9}  # 53
GPT2 = {"d_model": 768, "n_layers": 12, "n_heads": 12}  # 124
TRAINED = {
    "": Shape(32, 256, vocab_size=65),
    "6L d384, ": Shape(16, 256, vocab_size=65, **D384),
    "6L d256, ": Shape(8, 128, vocab_size=8192, **D256),
    "12L d576, ": Shape(4, 128, vocab_size=8192, **D576),
}
DECODED = {
    "1 sequence": Shape(1, 256, vocab_size=4096),
    "16 sequences": Shape(16, 256, vocab_size=4096),
    "6L d384, 1 sequence": Shape(1, 256, vocab_size=65, **D384),
    "6L d256, 1 sequence": Shape(1, 256, vocab_size=8192, **D256),
    "6L d256, 8 sequences": Shape(8, 256, vocab_size=8192, **D256),
    "12L d576, 1 sequence": Shape(1, 256, vocab_size=8192, **D576),
    "12L d576, 8 sequences": Shape(8, 256, vocab_size=8192, **D576),
}
TRAINED_ON_GPU = {"": TRAINED[""], "GPT-2 124M, ": Shape(32, 1024, vocab_size=50257, **GPT2)}
DECODED_ON_GPU = {"1 sequence": DECODED["1 sequence"], "64 sequences": Shape(64, 256, vocab_size=4096)}
RECIPES = {"start": ["debug"]}

Figures = dict[str, dict[str, float]]  # rows of a table
Tables = dict[str, Figures]


def measure(*only: str, pairs: int = 5) -> Iterator[Entry]:
    """only: roof, training, decoding, position, start and memory; without one, all of them."""
    keep_freed_memory()
    auto = resolve_precision("auto", "auto")
    roof = cache(lambda: measure_roof(auto.device, dict.fromkeys([auto.dtype, torch.float32])))
    parts: dict[str, Callable[[], Tables]] = {
        "roof": lambda: show_roof(roof()),
        "training": lambda: compare_training(auto, roof(), pairs),
        "decoding": lambda: compare_decoding(auto.device, roof(), pairs),
        "position": lambda: {"position": measure_growth_with_position(auto.device, pairs)},
        "start": lambda: {"start": compare_start(pairs)},
        "memory": lambda: {"memory": measure_memory(auto)},
    }
    if unknown := set(only) - set(parts):
        sys.exit(f"error: no part {', '.join(unknown)}; choose among {', '.join(parts)}")
    for part in only or parts:
        numbers = "fp32" if part in ("decoding", "position") else None
        for name, figures in parts[part]().items():
            yield Entry(here(name), figures, RECIPES.get(name, ()), numbers=numbers)


def show_roof(roof: Roof) -> Tables:
    peaks = {str(dtype).removeprefix("torch."): flops / 1e9 for dtype, flops in roof.flops_per_second.items()}
    return {
        "peak": {dtype: {"GFLOP per second": peak} for dtype, peak in peaks.items()},
        "bandwidth": {"reading memory": {"GB per second": roof.bytes_per_second / 1e9}},
        "call": {"a call": {"microseconds": 1e6 * roof.seconds_per_call}},
    }


def pairs_for(shape: Shape, n_pairs: int) -> int:
    return n_pairs if shape.d_model == 128 else ceil(n_pairs / 2)


def compare_training(auto: Precision, roof: Roof, n_pairs: int) -> Tables:
    """Tokens per second by shape and precision, and how near the limit that is."""
    fp32 = replace(auto, dtype=torch.float32)
    tables: Tables = {"training": {}, "training limits": {}}
    for model, shape in (TRAINED_ON_GPU if auto.device.type == "cuda" else TRAINED).items():
        tokens = shape.batch_size * shape.context_length
        for settings, mine, other in [("default settings", auto, fp32), ("bf16", auto, auto), ("fp32", fp32, fp32)]:
            turns = pellucid_training(shape, mine), hugging_face_training(shape, other)
            ours, theirs, ratio = compare(*turns, pairs_for(shape, n_pairs)).values()
            needs, their_needs = (
                needs_of_training(shape.config, shape.vocab_size, tokens, precision.dtype)
                for precision in (mine, other)
            )
            peak = 100 * needs.seconds(roof)[0] * ours / tokens
            speeds = {"Pellucid": ours, "of peak (%)": peak, "transformers": theirs, "ratio": ratio}
            tables["training"][model + settings] = speeds
            calls = calls_of_training(shape, mine)
            limits = shares(roof, calls, (needs, tokens / ours), (their_needs, tokens / theirs))
            tables["training limits"][model + settings] = limits
    return tables


def compare_decoding(device: torch.device, roof: Roof, n_pairs: int) -> Tables:
    """Tokens per second, and how near the limit that is."""
    tables: Tables = {"decoding": {}, "decoding limits": {}}
    for name, shape in (DECODED_ON_GPU if device.type == "cuda" else DECODED).items():
        turns = pellucid_decoding(shape, device), hugging_face_decoding(shape, device)
        speeds = tables["decoding"][name] = compare(*turns, pairs_for(shape, n_pairs))
        n = shape.batch_size
        needs = needs_of_decoding(shape.config, shape.vocab_size, n, NEW_TOKENS, torch.float32)  # in both
        ours, theirs = ((needs, n / speeds[who]) for who in ("Pellucid", "transformers"))
        limits = shares(roof, calls_of_decoding(shape, device), ours, theirs)
        tables["decoding limits"][name] = limits
    return tables


def measure_growth_with_position(device: torch.device, n_runs: int) -> Figures:
    """The time between two tokens, early and late in one text."""
    shape = Shape(batch_size=1, context_length=1024, vocab_size=4096)
    model = build_model(shape.config, shape.vocab_size).to(device)
    early, late = [], []
    for seed in range(n_runs):
        writing = Writing([0], 1020, Sampling(top_k=TOP_K), seed=(seed,))
        moments = [time.perf_counter() for _ in in_step(model, [writing], stop_ids=())]
        gaps = [after - before for before, after in pairwise(moments)]
        early += gaps[5:25]
        late += gaps[990:1010]
    a, b = median(early), median(late)
    return {"10": {"ms": 1e3 * a, "times as long": 1.0}, "1,000": {"ms": 1e3 * b, "times as long": b / a}}


def compare_start(n_pairs: int) -> Figures:
    """`pellucid generate` of 100 tokens, as a whole command, and a program that only imports PyTorch."""
    pellucid("train", ROOT / "configs/debug.yaml", "--run-dir", "run")
    commands = {
        "pellucid generate": lambda: pellucid("generate", "run", "--max-new-tokens", "100"),
        "import torch": lambda: subprocess.run([sys.executable, "-c", "import torch"], check=True),
    }
    times = take_turns({name: partial(seconds_of, command) for name, command in commands.items()}, n_pairs)
    return {name: {"seconds": median(seconds)} for name, seconds in times.items()}


def peak_of_training(shape: Shape, precision: Precision, accumulation: int, checkpointing: bool) -> float:
    """Megabytes that two updates need at most, beyond what the process held before. For a process of its own."""
    trainer = pellucid_trainer(shape, precision, accumulation=accumulation, checkpointing=checkpointing)
    before = most_memory_so_far()
    for _ in range(2):
        trainer.update()
    if precision.device.type == "cuda":
        return torch.cuda.max_memory_allocated() / 1e6
    return (most_memory_so_far() - before) / 1e6


def most_memory_so_far() -> int:
    """Bytes that this process ever held (Linux). getrusage would count its parent's from before the start, too."""
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:")]
    return 1024 * int(line.split()[1])


def measure_memory(auto: Precision) -> Figures:
    shape = Shape(batch_size=32, context_length=256, vocab_size=4096)
    rows: Figures = {}
    for accumulation in (1, 4, 16):
        row = rows[f"{accumulation} × {shape.batch_size}"] = {}
        for name, checkpointing in (("peak (MB)", False), ("with gradient checkpointing (MB)", True)):
            row[name] = in_a_process(peak_of_training, shape, auto, accumulation, checkpointing)
    return rows
