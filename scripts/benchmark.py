"""Training and decoding speed, memory and start-up, beside Hugging Face `transformers` at the same shape, in one run.

    python scripts/benchmark.py --pairs 5

Both train a decoder of GPT-2's design (4 layers, width 128, learned positions, GELU) with AdamW on the same random
tokens, and write the same number of tokens with top-k 50. Pellucid's has no biases, as is its default. The two take
turns, so that a busy moment of the machine hits both; a line gives the medians, and the median of the ratios of
neighbours. Precisions that are compared:

    default settings   Pellucid bf16 where the hardware computes in it, transformers fp32
    bf16, fp32         both in the same; bf16 by autocast
"""

from __future__ import annotations

import multiprocessing
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from results import here, parser, print_table, record

from pellucid.config.model import DecoderConfig, LearnedConfig
from pellucid.cost.build import cost_of
from pellucid.cost.machine import measure_flops_per_second
from pellucid.data.batches import Batch
from pellucid.generation.decoding import generate_tokens
from pellucid.generation.sampling import Sampling
from pellucid.kernels.freed_memory import keep_freed_memory
from pellucid.model.build import build_model
from pellucid.runtime.precision import Precision, resolve_precision
from pellucid.training.build import choose_objective, recompute_activations
from pellucid.training.optimizers import adamw
from pellucid.training.trainer import Trainer

NEW_TOKENS, TOP_K = 240, 50
SECONDS_A_TURN = 1.5
NO_END = -1  # an end-of-text that is never drawn: every sample gets its full length

Turn = Callable[[], float]  # one measurement
Figures = dict[str, dict[str, float]]  # rows of a table


@dataclass(frozen=True)
class Shape:
    """Of the model and of a batch."""

    batch_size: int
    context_length: int
    vocab_size: int
    d_model: int = 128
    n_layers: int = 4
    n_heads: int = 2

    @property
    def config(self) -> DecoderConfig:
        return DecoderConfig(
            context_length=self.context_length,
            d_model=self.d_model,
            n_layers=self.n_layers,
            n_heads=self.n_heads,
            position=LearnedConfig(type="learned"),
        )

    def hugging_face(self) -> Any:
        import transformers  # here, as our own speed can be measured without it

        transformers.logging.set_verbosity_error()
        config = transformers.GPT2Config(
            vocab_size=self.vocab_size,
            n_positions=self.context_length,
            n_embd=self.d_model,
            n_layer=self.n_layers,
            n_head=self.n_heads,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=0,
            eos_token_id=0,
        )
        config.loss_type = "ForCausalLM"  # its default, but it warns where nobody says so
        return transformers.GPT2LMHeadModel(config)

    def batch(self, i: int) -> Batch:
        generator = torch.Generator().manual_seed(i)
        shape = (self.batch_size, self.context_length + 1)
        tokens_BT = torch.randint(self.vocab_size, shape, generator=generator)
        return Batch(tokens_BT[:, :-1], tokens_BT[:, 1:])


def tokens_per_second(work: Callable[[], int]) -> float:
    """Repeats the work, which tells how many tokens it was, for a while."""
    n_tokens, started = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - started) < SECONDS_A_TURN:
        n_tokens += work()
    return n_tokens / elapsed


def pellucid_trainer(
    shape: Shape, precision: Precision, *, accumulation: int = 1, checkpointing: bool = False
) -> Trainer:
    model = build_model(shape.config, shape.vocab_size).to(precision.device)
    if checkpointing:
        recompute_activations(model.blocks)
    forward = torch.compile(model) if precision.device.type == "cuda" else model
    return Trainer(
        model,
        forward,
        adamw(model, lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1),
        lambda step: 1.0,
        lambda i, rows: shape.batch(i).part(rows),
        precision,
        objective=choose_objective(shape.config, model),
        gradient_accumulation_steps=accumulation,
        max_gradient_norm=1.0,
    )


def pellucid_training(shape: Shape, precision: Precision) -> Turn:
    trainer = pellucid_trainer(shape, precision)
    return partial(tokens_per_second, lambda: trainer.update().tokens)


def hugging_face_training(shape: Shape, precision: Precision) -> Turn:
    """The loop that its documentation shows: forward with labels, backward, clip, AdamW."""
    model = shape.hugging_face().to(precision.device)
    forward = torch.compile(model) if precision.device.type == "cuda" else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)
    step = 0

    def update() -> int:
        nonlocal step
        tokens_BT = shape.batch(step).inputs_BT.to(precision.device)
        step += 1
        with precision.autocast():
            loss = forward(input_ids=tokens_BT, labels=tokens_BT).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        loss.item()
        return tokens_BT.numel()

    return partial(tokens_per_second, update)


def pellucid_decoding(shape: Shape, device: torch.device) -> Turn:
    model = build_model(shape.config, shape.vocab_size).to(device)

    def write() -> int:
        stream = generate_tokens(
            model,
            [0],
            n_samples=shape.batch_size,
            max_new_tokens=NEW_TOKENS,
            sampling=Sampling(top_k=TOP_K),
            stop_ids=[NO_END],
            seed=0,
        )
        return shape.batch_size * sum(1 for _ in stream)

    return partial(tokens_per_second, write)


def hugging_face_decoding(shape: Shape, device: torch.device) -> Turn:
    model = shape.hugging_face().to(device).eval()
    prompt_BT = torch.zeros(shape.batch_size, 1, dtype=torch.long, device=device)

    def write() -> int:
        settings = {"do_sample": True, "top_k": TOP_K, "min_new_tokens": NEW_TOKENS, "max_new_tokens": NEW_TOKENS}
        written = model.generate(prompt_BT, attention_mask=torch.ones_like(prompt_BT), pad_token_id=0, **settings)
        return int(written[:, 1:].numel())

    return partial(tokens_per_second, write)


def compare(ours: Turn, theirs: Turn, n_pairs: int) -> tuple[float, float, float]:
    """Medians of both, and the median ratio of neighbours; the first pair warms up and is left out."""
    pairs = [(ours(), theirs()) for _ in range(n_pairs + 1)][1:]
    mine, other = zip(*pairs, strict=True)
    return statistics.median(mine), statistics.median(other), statistics.median(a / b for a, b in pairs)


def compare_training(shape: Shape, auto: Precision, n_pairs: int) -> tuple[Figures, Figures]:
    """Tokens per second, by precision; and the matrix products that the hardware does per second."""
    fp32 = replace(auto, dtype=torch.float32)
    peak = {p: measure_flops_per_second(p.device, p.dtype) for p in (auto, fp32)}
    flops_per_token = cost_of(shape.config, shape.vocab_size).training_flops_per_token.total
    found: Figures = {}
    for name, mine, other in [("default settings", auto, fp32), ("bf16", auto, auto), ("fp32", fp32, fp32)]:
        ours, theirs, ratio = compare(pellucid_training(shape, mine), hugging_face_training(shape, other), n_pairs)
        share = 100 * ours * flops_per_token / peak[mine]
        found[name] = {"Pellucid": ours, "of peak (%)": share, "transformers": theirs, "ratio": ratio}
    return found, {str(p.dtype).removeprefix("torch."): {"GFLOP per second": flops / 1e9} for p, flops in peak.items()}


def compare_decoding(device: torch.device, n_pairs: int) -> Figures:
    """Tokens per second."""
    many = 64 if device.type == "cuda" else 16
    found: Figures = {}
    for name, n_samples in (("1 sequence", 1), (f"{many} sequences", many)):
        shape = Shape(batch_size=n_samples, context_length=256, vocab_size=4096)
        turns = pellucid_decoding(shape, device), hugging_face_decoding(shape, device)
        ours, theirs, ratio = compare(*turns, n_pairs)
        found[name] = {"Pellucid": ours, "transformers": theirs, "ratio": ratio}
    return found


def measure_growth_with_position(device: torch.device, n_runs: int) -> Figures:
    """The time between two tokens, early and late in one text."""
    shape = Shape(batch_size=1, context_length=1024, vocab_size=4096)
    model = build_model(shape.config, shape.vocab_size).to(device)
    settings = {"n_samples": 1, "max_new_tokens": 1020, "sampling": Sampling(top_k=TOP_K), "stop_ids": [NO_END]}
    early, late = [], []
    for seed in range(n_runs):
        moments = [time.perf_counter() for _ in generate_tokens(model, [0], seed=seed, **settings)]
        gaps = [after - before for before, after in pairwise(moments)]
        early += gaps[5:25]
        late += gaps[990:1010]
    a, b = statistics.median(early), statistics.median(late)
    return {"10": {"ms": 1e3 * a, "times as long": 1.0}, "1,000": {"ms": 1e3 * b, "times as long": b / a}}


def compare_start(n_pairs: int) -> Figures:
    """`pellucid generate` of 100 tokens, as a whole command, and the least that any program with PyTorch needs."""
    pellucid = [sys.executable, "-m", "pellucid"]
    config = Path(__file__).parent.parent / "configs" / "debug.yaml"
    run = partial(subprocess.run, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def seconds(command: list[str]) -> float:
        started = time.perf_counter()
        run(command, cwd=folder)
        return time.perf_counter() - started

    with tempfile.TemporaryDirectory() as folder:
        run([*pellucid, "train", str(config.resolve()), "--run-dir", "run"], cwd=folder)
        generate = partial(seconds, [*pellucid, "generate", "run", "--max-new-tokens", "100"])
        ours, least, _ = compare(generate, partial(seconds, [sys.executable, "-c", "import torch"]), n_pairs)
    found = {"pellucid generate": ours, "import torch": least, "beyond import torch": ours - least}
    return {name: {"seconds": seconds} for name, seconds in found.items()}


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
    found: Figures = {}
    for accumulation in (1, 4, 16):
        row = found[f"{accumulation} × {shape.batch_size}"] = {}
        for name, checkpointing in (("peak (MB)", False), ("with gradient checkpointing (MB)", True)):
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
                row[name] = process.submit(peak_of_training, shape, auto, accumulation, checkpointing).result()
    return found


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--pairs", type=int, default=5)
    arguments.add_argument("--decoding", action="store_true", help="nothing but the speed of decoding")
    options = arguments.parse_args()
    n_pairs = options.pairs
    keep_freed_memory()
    auto = resolve_precision("auto", "auto")
    print(f"PyTorch {torch.__version__}, {torch.get_num_threads()} threads, {auto.device}, medians of {n_pairs} pairs")

    def show(name: str, figures: Figures, recipes: Sequence[str] = (), numbers: str | None = None) -> None:
        print_table(name, figures)
        if options.record:
            record(here(name), figures, recipes, numbers=numbers)

    if options.decoding:
        show("decoding", compare_decoding(auto.device, n_pairs), numbers="fp32")
        return
    training, peak = compare_training(Shape(batch_size=32, context_length=256, vocab_size=65), auto, n_pairs)
    show("peak", peak)
    show("training", training)
    if auto.device.type == "cuda":
        gpt2 = Shape(batch_size=32, context_length=1024, vocab_size=50257, d_model=768, n_layers=12, n_heads=12)
        show("training GPT-2 124M", compare_training(gpt2, auto, n_pairs)[0])
    show("decoding", compare_decoding(auto.device, n_pairs), numbers="fp32")
    show("position", measure_growth_with_position(auto.device, n_pairs), numbers="fp32")
    show("start", compare_start(n_pairs), ["debug"])
    show("memory", measure_memory(auto))


if __name__ == "__main__":
    main()
