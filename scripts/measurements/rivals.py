"""Pellucid, Hugging Face `transformers` and nanoGPT at the same shape, and how two turns are compared.

All have GPT-2's design: learned positions, GELU, tied embeddings. Pellucid's has no biases, as is its default.
"""

import importlib.util
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import torch
from timing import median_ratio, take_turns
from torch import Tensor, nn
from torch.optim import Optimizer

from pellucid.config.model import DecoderConfig, LearnedConfig
from pellucid.cost.meter import Meter
from pellucid.data.batches import Batch
from pellucid.generation.engine import in_step
from pellucid.generation.sampling import Sampling
from pellucid.generation.writing import Writing
from pellucid.kernels.products import with_faster_products
from pellucid.model.build import build_model
from pellucid.model.recompute import recompute_activations
from pellucid.objectives.next_token import choose_objective
from pellucid.runtime.precision import Precision
from pellucid.training.optimizers import adamw
from pellucid.training.trainer import Trainer

NEW_TOKENS, TOP_K = 240, 50
SECONDS_A_TURN = 1.5

Turn = Callable[[], float]  # one measurement


@dataclass(frozen=True)
class Shape:
    """The shape of a model and of a batch."""

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
        return Batch(tokens_BT[:, :-1], tokens_BT[:, 1:].contiguous())


def tokens_per_second(work: Callable[[], int]) -> float:
    """Repeats the work, which returns its number of tokens, for a while."""
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
    in_float32 = precision.dtype == torch.float32 and not checkpointing
    forward = with_faster_products(model) if in_float32 else model  # as in training
    compiles = precision.device.type == "cuda"
    return Trainer(
        model,
        torch.compile(model) if compiles else forward,
        adamw(model, lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1),
        lambda step: 1.0,
        lambda i, rows: shape.batch(i).part(rows),
        precision,
        objective=choose_objective(shape.config, model, compiles),
        gradient_accumulation_steps=accumulation,
        max_gradient_norm=1.0,
    )


def pellucid_training(shape: Shape, precision: Precision) -> Turn:
    trainer = pellucid_trainer(shape, precision)
    return partial(tokens_per_second, lambda: trainer.update().tokens)


def calls_of_training(shape: Shape, precision: Precision) -> int:
    """Operations of PyTorch that an update starts."""
    trainer = pellucid_trainer(shape, precision)
    trainer.update()  # the first one also makes the moments
    with Meter() as meter:
        trainer.update()
    return meter.operations


def updates_of_others(
    model: nn.Module,
    optimizer: Optimizer,
    loss_of: Callable[[Batch], Tensor],
    batch_of: Callable[[int], Batch],
    precision: Precision,
) -> Callable[[], int]:
    """The loop that other programs' documentation shows: forward, backward, clip, AdamW."""
    steps = count()

    def update() -> int:
        batch = batch_of(next(steps)).to(precision.device)
        with precision.autocast():
            loss = loss_of(batch)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        loss.item()
        return batch.inputs_BT.numel()

    return update


def hugging_face_updates(shape: Shape, precision: Precision) -> Callable[[], int]:
    model = shape.hugging_face().to(precision.device)
    forward = torch.compile(model) if precision.device.type == "cuda" else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)

    def loss_of(batch: Batch) -> Tensor:
        return forward(input_ids=batch.inputs_BT, labels=batch.inputs_BT).loss

    return updates_of_others(model, optimizer, loss_of, shape.batch, precision)


def hugging_face_training(shape: Shape, precision: Precision) -> Turn:
    return partial(tokens_per_second, hugging_face_updates(shape, precision))


def nanogpt_updates(shape: Shape, precision: Precision, folder: Path, *, bias: bool = False) -> Callable[[], int]:
    """Updates of nanoGPT's model, of the file model.py in this folder, as its train.py makes them."""
    spec = importlib.util.spec_from_file_location("nanogpt_model", folder / "model.py")
    assert spec is not None
    assert spec.loader is not None
    nanogpt = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # where its data class looks for itself
    spec.loader.exec_module(nanogpt)
    names = {"block_size": "context_length", "n_layer": "n_layers", "n_head": "n_heads", "n_embd": "d_model"}
    sizes = {theirs: getattr(shape, ours) for theirs, ours in names.items()}
    model = nanogpt.GPT(nanogpt.GPTConfig(vocab_size=shape.vocab_size, dropout=0.0, bias=bias, **sizes))
    model = model.to(precision.device)
    optimizer = model.configure_optimizers(0.1, 1e-3, (0.9, 0.95), precision.device.type)
    forward = torch.compile(model) if precision.device.type == "cuda" else model
    return updates_of_others(model, optimizer, lambda batch: forward(*batch)[1], shape.batch, precision)


def pellucid_steps(shape: Shape, device: torch.device) -> Callable[[], Iterator[None]]:
    model, sampling = build_model(shape.config, shape.vocab_size).to(device), Sampling(top_k=TOP_K)

    def steps() -> Iterator[None]:
        writings = [Writing([0], NEW_TOKENS, sampling, seed=(0, i)) for i in range(shape.batch_size)]
        return in_step(model, writings, stop_ids=())

    return steps


def pellucid_decoding(shape: Shape, device: torch.device) -> Turn:
    steps = pellucid_steps(shape, device)
    return partial(tokens_per_second, lambda: shape.batch_size * sum(1 for _ in steps()))


def calls_of_decoding(shape: Shape, device: torch.device) -> int:
    """Operations of PyTorch that a token starts, after the first, which reads the prompt, and a second, which packs."""
    steps = pellucid_steps(shape, device)()
    next(steps), next(steps)
    with Meter() as meter:
        next(steps)
    return meter.operations


def hugging_face_decoding(shape: Shape, device: torch.device) -> Turn:
    model = shape.hugging_face().to(device).eval()
    prompt_BT = torch.zeros(shape.batch_size, 1, dtype=torch.long, device=device)

    def write() -> int:
        settings = {"do_sample": True, "top_k": TOP_K, "min_new_tokens": NEW_TOKENS, "max_new_tokens": NEW_TOKENS}
        written = model.generate(prompt_BT, attention_mask=torch.ones_like(prompt_BT), pad_token_id=0, **settings)
        return int(written[:, 1:].numel())

    return partial(tokens_per_second, write)


def compare(ours: Turn, theirs: Turn, n_pairs: int) -> dict[str, float]:
    """Medians of both, and the median ratio of neighbours."""
    speeds = take_turns({"Pellucid": ours, "transformers": theirs}, n_pairs)
    medians = {name: statistics.median(measured) for name, measured in speeds.items()}
    return {**medians, "ratio": median_ratio(*speeds.values())}
