"""Training on many devices, on paper: what each of them holds, what it sends, and how long a step takes.

Remakes: devices
Takes: a minute
Needs: nothing; with a config (`measure.py devices --config configs/gpt2_124m.yaml`) prints its case instead

    ddp      data parallel: every device holds the model and takes its share of the rows; gradients are summed over all
    fsdp     the same, but a device keeps 1/n of weights, gradients and moments, and gathers a block when it needs it
    tp       tensor parallel: the devices of a group compute a part of every layer each, and add up their results
    pp       pipeline parallel: the devices of a group hold some of the layers each, and pass activations on
    tp+pp    both

In the last three each group holds one copy of the model, and the copies work beside each other as in ddp.
docs/many_machines.md says what is assumed, and where each formula is from. Three models are recorded on 8, 64 and 1,024
GPUs: GPT-2 small as its config trains it, and the shapes and the batch of Llama 2 (Touvron et al. 2023: 4 million
tokens); and a case that others have measured. `measure.py processes` compares with real processes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from results import ROOT, Entry

from pellucid.config.load import load_run_config
from pellucid.config.model import DecoderConfig
from pellucid.config.run import RunConfig
from pellucid.cost.machine import Machine
from pellucid.cost.step_time import duration, model_flops_utilization, step_seconds
from pellucid.runs.cost_of_run import cost_of_run, vocab_size_of
from pellucid.runtime.precision import Precision, resolve_precision

# NVIDIA's H100 SXM: 80 GB, and 450 GB/s by NVLink 4 in each direction, of which a ring reaches some 80 %.
MEMORY_BYTES, NVLINK_BYTES_PER_SECOND = 80e9, 360e9
UTILIZATION = 0.4  # of the peak, by a GPU that waits for no other

LLAMA = ["model.position={type: rope}", "model.norm=rms_norm", "model.activation=swiglu", "model.bias=false"]
LLAMA += ["model.tied_embeddings=false"]
LLAMA_2 = [*LLAMA, "tokenizer.vocab_size=32000", "model.context_length=4096", "train.batch_size=1"]
LLAMA_2 += ["train.gradient_accumulation_steps=1024", "train.gradient_checkpointing=block"]
LLAMA_3_8B = [*LLAMA, "tokenizer.vocab_size=128256", "model.context_length=8192", "train.batch_size=2"]
LLAMA_3_8B += [f"model.{size}" for size in ("d_model=4096", "n_layers=32", "n_heads=32", "n_kv_heads=8", "d_ff=14336")]
SIZES = {
    "7 B": ("d_model=4096", "n_layers=32", "n_heads=32", "d_ff=11008"),
    "70 B": ("d_model=8192", "n_layers=80", "n_heads=64", "n_kv_heads=8", "d_ff=28672"),
}
MODELS = {"124 M": [], **{name: [*LLAMA_2, *(f"model.{size}" for size in sizes)] for name, sizes in SIZES.items()}}
IN_FULL = ("70 B", 64)
ASSUMED = """\
    weights, gradients and moments have 4 bytes a number, also when they are sent
    a GPU alone uses {:.0%} of its peak, however few its rows
    to sum over n GPUs (all-reduce), each sends 2(n-1)/n of the bytes; to gather, (n-1)/n (Patarasuk and Yuan 2009)
    ddp sums gradients during the last backward pass (Li et al. 2020)
    fsdp gathers weights twice and scatters gradients once a micro-batch, while it computes (Rajbhandari et al. 2020)
    tp sums activations twice a block and pass, and waits for them (Shoeybi et al. 2019; Korthikanti et al. 2022)
    pp takes single rows, one forward, one back; p stages and m rows make a bubble of (p-1)/(m+p-1) (Huang et al. 2019)
    not counted: latency, waiting for the slowest GPU, evaluating, saving
sources and reasons: docs/many_machines.md"""


def measure(
    *changes: str,
    config: Path | None = None,
    devices: int = 8,
    per_node: int = 8,
    tflops: float = 989,
    bandwidth: float = 40,
) -> Iterator[Entry]:
    """changes: of the config, as key=value. --tflops: the peak of a GPU. --bandwidth: GB/s to other nodes."""
    if config:
        update, machine = update_of(config, list(changes), tflops)
        lines = in_full(update, gpus(devices, per_node, bandwidth), machine)
        yield Entry("one case", {"in full": lines})
        return
    figures: dict[str, Any] = {"memory": {}, "efficiency": {}, "in full": [], "Llama 3.1 8B": {}}
    for name, changes in MODELS.items():
        update, machine = update_of(ROOT / "configs/gpt2_124m.yaml", changes)
        for n in (8, 64, 1024):
            cluster, case = gpus(n), f"{name}, {n:,} GPUs"
            by_way = plans(update, cluster)
            figures["memory"][case] = {way: plan.memory.total / 1e9 if plan else "–" for way, plan in by_way.items()}
            figures["efficiency"][case] = {way: percent(update, cluster, plan) for way, plan in by_way.items()}
            if (name, n) == IN_FULL:
                figures["in full"] = in_full(update, cluster, machine)
    for n in (8, 128):
        changes = [*LLAMA_3_8B, f"train.gradient_accumulation_steps={n}"]
        update, _ = update_of(ROOT / "configs/gpt2_124m.yaml", changes)
        seconds = plans(update, gpus(n))["fsdp"].step.seconds
        rate = update.rows * update.tokens_per_row / seconds / n
        figures["Llama 3.1 8B"][f"{n} GPUs"] = {"tokens per second and GPU": rate}
    yield Entry("devices", figures, ["gpt2_124m"], "on paper", "bf16")


def update_of(file: Path, changes: list[str], teraflops: float = 989) -> tuple[Update, Machine]:
    """The update of a config, and a GPU of this peak, which is always at work at the usual share of it."""
    config = load_run_config(file, changes)
    precision = resolve_precision("cpu", "fp32" if config.train.precision == "fp32" else "bf16")
    name = f"GPU, {str(precision.dtype).removeprefix('torch.')}"
    machine = Machine(name, UTILIZATION * teraflops * 1e12, math.inf, 0.0)
    return update_on_one_device(config, vocab_size_of(config), precision, machine), machine


def gpus(n_devices: int, devices_per_node: int = 8, gigabytes_per_second: float = 40) -> Cluster:
    """H100s, which send so much each to other nodes."""
    return Cluster(n_devices, devices_per_node, NVLINK_BYTES_PER_SECOND, gigabytes_per_second * 1e9, MEMORY_BYTES)


class Plan(NamedTuple):
    layout: Layout
    memory: Memory
    step: Step


def plans(update: Update, cluster: Cluster) -> dict[str, Plan | None]:
    """Each way; None where it cannot be."""
    return {
        way: layout and Plan(layout, memory_of(update, layout), step_of(update, cluster, layout))
        for way, layout in layouts(update, cluster).items()
    }


def percent(update: Update, cluster: Cluster, plan: Plan | None) -> float | str:
    """The scaling efficiency, if the model has room."""
    if plan is None or plan.memory.total > cluster.memory_bytes_per_device:
        return "–" if plan is None else "too large"
    return 100 * efficiency(update, cluster, plan.step)


def in_full(update: Update, cluster: Cluster, machine: Machine) -> list[str]:
    """A table of all ways, and what it assumes."""
    n, peak, by_way = cluster.n_devices, machine.flops_per_second / UTILIZATION, plans(update, cluster)

    def line(name: str, shown: Callable[[Plan], str]) -> str:
        return f"    {name:<32}" + "".join(f"{'-' if plan is None else shown(plan):>12}" for plan in by_way.values())

    def gigabytes(name: str, part: str, key: str) -> str:
        return line(name, lambda plan: f"{getattr(getattr(plan, part), key) / 1e9:,.2f}")

    def seconds(name: str, key: str) -> str:
        return line(name, lambda plan: duration(taken) if (taken := getattr(plan.step, key)) else "0")

    def mfu(plan: Plan) -> float:
        return model_flops_utilization(update.model_flops / n, plan.step.seconds, peak)

    rate = update.rows * update.tokens_per_row
    return [
        f"{n:,} GPUs, {cluster.devices_per_node:,} in a node; an update reads {update.rows:,} rows of "
        f"{update.tokens_per_row:,} tokens",
        f"{'':36}" + "".join(f"{way:>12}" for way in by_way),
        line("copies of the model", lambda plan: f"{plan.layout.replicas:,}"),
        line("GPUs that share a layer (tp)", lambda plan: f"{plan.layout.tensor}"),
        line("stages of layers (pp)", lambda plan: f"{plan.layout.stages}"),
        line("micro-batches of a copy", lambda plan: f"{plan.step.micro_batches:,}"),
        "memory of a GPU in GB",
        *(gigabytes(kind, "memory", kind) for kind in ("weights", "gradients", "optimizer", "activations")),
        gigabytes("gathered for a moment", "memory", "gathered"),
        gigabytes("total", "memory", "total"),
        line(
            f"fits in {cluster.memory_bytes_per_device / 1e9:.0f} GB",
            lambda plan: "yes" if plan.memory.total <= cluster.memory_bytes_per_device else "no",
        ),
        "sent by a GPU in a step, in GB",
        gigabytes("gradients (fsdp: and weights)", "step", "replica_bytes"),
        gigabytes("sums within layers", "step", "tensor_bytes"),
        gigabytes("from stage to stage", "step", "stage_bytes"),
        "time of a step",
        *(seconds(kind, f"{kind}_seconds") for kind in ("computing", "bubble", "sending")),
        seconds("  of it while computing", "hidden_seconds"),
        seconds("in all", "seconds"),
        line("bubble, of a stage's time", lambda p: f"{bubble_fraction(p.layout.stages, p.step.micro_batches):.0%}"),
        line("scaling efficiency", lambda plan: f"{efficiency(update, cluster, plan.step):.0%}"),
        line("model FLOPs utilization (MFU)", lambda plan: f"{mfu(plan):.0%}"),
        line("tokens per second", lambda plan: f"{rate / plan.step.seconds:,.0f}"),
        "assumed",
        f"    {machine.where}, peak {peak / 1e12:,.0f} TFLOP/s; sends "
        f"{cluster.bytes_per_second_inside / 1e9:,.0f} GB/s inside a node, "
        f"{cluster.bytes_per_second_between / 1e9:,.0f} GB/s to other nodes",
        *ASSUMED.format(UTILIZATION).splitlines(),
    ]


@dataclass(frozen=True)
class Update:
    """One update as a single device would make it. Bytes and seconds are those that `pellucid cost` gives.

    `fixed_activation_bytes` do not grow with the rows: the copies of the weights in the format of the products.
    `direction_bytes` are of Muon's directions: each copy of the model computes some and gathers the others. Where there
    are none (AdamW), each copy computes its whole step.
    """

    rows: int
    rows_per_micro_batch: int
    tokens_per_row: int
    n_layers: int
    n_kv_heads: int
    forward_passes: int  # 2 where the backward pass computes the activations again
    weight_bytes: int
    block_weight_bytes: int
    gradient_bytes: int
    optimizer_bytes: int
    direction_bytes: int
    model_flops: int
    fixed_activation_bytes: float
    activation_bytes_per_row: float
    residual_bytes_per_row: int  # of one tensor as wide as the model: what tp adds up and pp passes on
    seconds_per_micro_batch: float  # and besides:
    seconds_per_row: float
    optimizer_seconds: float

    @property
    def seconds(self) -> float:
        micro_batches = self.rows / self.rows_per_micro_batch * self.seconds_per_micro_batch
        return micro_batches + self.rows * self.seconds_per_row + self.optimizer_seconds


def update_on_one_device(config: RunConfig, vocab_size: int, precision: Precision, machine: Machine) -> Update:
    """The work of an update on one such machine, to be shared out among many. A second count, with twice as many rows
    in a micro-batch, separates what grows with the rows from what does not.
    """
    model, train = config.model, config.train
    assert isinstance(model, DecoderConfig), f"the {model.type} has no layers to share out among devices"
    twice = config.model_copy(update={"train": train.model_copy(update={"batch_size": 2 * train.batch_size})})
    cost, cost_of_twice = (cost_of_run(each, vocab_size, precision) for each in (config, twice))
    memory, parameters = cost.memory_bytes, cost.model.parameters
    blocks = parameters.attention + parameters.feed_forward
    block_bytes = blocks * memory.weights // parameters.total // model.n_layers
    more_activations = cost_of_twice.memory_bytes.activations - memory.activations
    micro_batch, of_twice = (step_seconds(each.micro_batch_work, machine) for each in (cost, cost_of_twice))
    return Update(
        rows=config.rows_per_micro_batch * train.gradient_accumulation_steps,
        rows_per_micro_batch=config.rows_per_micro_batch,
        tokens_per_row=model.context_length,
        n_layers=model.n_layers,
        n_kv_heads=model.n_kv_heads or model.n_heads,
        forward_passes=2 if train.gradient_checkpointing == "block" else 1,
        weight_bytes=memory.weights,
        block_weight_bytes=block_bytes,
        gradient_bytes=memory.gradients,
        optimizer_bytes=memory.optimizer,
        direction_bytes=block_bytes * model.n_layers if config.optimizer.type == "muon" else 0,
        model_flops=cost.training_flops_per_step,
        fixed_activation_bytes=memory.activations - more_activations,
        activation_bytes_per_row=more_activations / config.rows_per_micro_batch,
        residual_bytes_per_row=model.context_length * model.d_model * precision.dtype.itemsize,
        seconds_per_micro_batch=2 * micro_batch - of_twice,
        seconds_per_row=(of_twice - micro_batch) / config.rows_per_micro_batch,
        optimizer_seconds=step_seconds(cost.optimizer_work, machine),
    )


@dataclass(frozen=True)
class Cluster:
    """Equal devices in equal nodes. Bytes per second are what one device sends, to its own node or out of it."""

    n_devices: int
    devices_per_node: int
    bytes_per_second_inside: float
    bytes_per_second_between: float
    memory_bytes_per_device: float
    sends_while_computing: bool = True


@dataclass(frozen=True)
class Layout:
    """`replicas` copies of the model, each on `tensor` times `stages` devices; sharded, the copies are one (fsdp)."""

    replicas: int
    tensor: int = 1
    stages: int = 1
    is_sharded: bool = False


@dataclass(frozen=True)
class Memory:
    """Bytes on a device. `gathered` are the whole weights that fsdp needs at the moment."""

    weights: float
    gradients: float
    optimizer: float
    activations: float
    gathered: float

    @property
    def total(self) -> float:
        return self.weights + self.gradients + self.optimizer + self.activations + self.gathered


@dataclass(frozen=True)
class Step:
    """One update on a device, in bytes and seconds. `hidden_seconds` are those of sending while it computes."""

    micro_batches: int
    replica_bytes: float
    tensor_bytes: float
    stage_bytes: float
    computing_seconds: float
    bubble_seconds: float
    sending_seconds: float
    hidden_seconds: float

    @property
    def seconds(self) -> float:
        return self.computing_seconds + self.bubble_seconds + self.sending_seconds - self.hidden_seconds


def all_reduce_bytes(n: int, n_bytes: float) -> float:
    """The bytes that each of n devices in a ring sends until all have the sum (Patarasuk and Yuan 2009)."""
    return 2 * gather_bytes(n, n_bytes)


def gather_bytes(n: int, n_bytes: float) -> float:
    """The bytes that each of n devices in a ring sends to gather the whole, of which each held 1/n at first.

    The reverse, which leaves each with 1/n of the sum (reduce-scatter), sends just as many.
    """
    return (n - 1) / n * n_bytes


def bubble_fraction(stages: int, micro_batches: int) -> float:
    """Share of the time that a stage waits: for its first micro-batch, and after its last (Huang et al. 2019)."""
    return (stages - 1) / (micro_batches + stages - 1)


def micro_batches_of(update: Update, layout: Layout) -> int:
    """How many each copy of the model takes. A pipeline takes single rows, so that the bubble is small."""
    rows = update.rows // layout.replicas
    return rows if layout.stages > 1 else math.ceil(rows / update.rows_per_micro_batch)


def memory_of(update: Update, layout: Layout) -> Memory:
    """Stages take micro-batches one forward, one back: the first holds as many at a time as there are stages, no more
    (Narayanan et al. 2021). fsdp holds what is outside the blocks, two blocks, and the gradient of one.
    """
    m, parts = micro_batches_of(update, layout), layout.tensor * layout.stages
    shards = parts * (layout.replicas if layout.is_sharded else 1)
    rows_held = update.rows / layout.replicas / m * min(m, layout.stages)
    gathers = layout.is_sharded and layout.replicas > 1
    outside = update.weight_bytes - update.n_layers * update.block_weight_bytes
    return Memory(
        weights=update.weight_bytes / shards,
        gradients=update.gradient_bytes / shards,
        optimizer=update.optimizer_bytes / shards,
        activations=(update.fixed_activation_bytes + rows_held * update.activation_bytes_per_row) / parts,
        gathered=(outside + min(3, update.n_layers) * update.block_weight_bytes) if gathers else 0,
    )


def step_of(update: Update, cluster: Cluster, layout: Layout) -> Step:
    """Layers and stages wait for what is sent to them. ddp sends gradients during the backward pass of
    the last micro-batch, fsdp weights and gradients all the time: that is hidden, but for the part of one block.
    """
    n, t, p = layout.replicas, layout.tensor, layout.stages
    m = micro_batches_of(update, layout)
    rows = update.rows / n / m
    residual_bytes = rows * update.residual_bytes_per_row
    # In each block and pass after attention and after the feed-forward layer; then the embedding and the unembedding.
    n_sums = (2 * (update.forward_passes + 1) * update.n_layers + 2) / p
    tensor_bytes = n_sums * all_reduce_bytes(t, residual_bytes)
    stage_bytes = 2 * residual_bytes / t if p > 1 else 0.0
    direction_bytes = gather_bytes(n, update.direction_bytes / (t * p))
    if layout.is_sharded:
        gradient_bytes = m * gather_bytes(n, 2 * update.weight_bytes + update.gradient_bytes)
    else:
        gradient_bytes = all_reduce_bytes(n, update.gradient_bytes / (t * p))

    micro_batch_computing = (update.seconds_per_micro_batch + rows * update.seconds_per_row / t) / p
    micro_batch_sending = tensor_bytes / _speed(cluster, t, 1) + stage_bytes / _speed(cluster, p, t * n, is_ring=False)
    gradient_sending, direction_sending = (sent / _speed(cluster, n, t) for sent in (gradient_bytes, direction_bytes))
    backward = (update.forward_passes + 1) / (update.forward_passes + 2) * micro_batch_computing
    can_hide = (m * micro_batch_computing if layout.is_sharded else backward) * cluster.sends_while_computing
    optimizer_shares = t * p * (n if layout.is_sharded or update.direction_bytes else 1)
    return Step(
        micro_batches=m,
        replica_bytes=gradient_bytes + direction_bytes,
        tensor_bytes=m * tensor_bytes,
        stage_bytes=m * stage_bytes,
        computing_seconds=m * micro_batch_computing + update.optimizer_seconds / optimizer_shares,
        bubble_seconds=(p - 1) * (micro_batch_computing + micro_batch_sending),
        sending_seconds=m * micro_batch_sending + gradient_sending + direction_sending,
        hidden_seconds=min(gradient_sending * (1 - p / update.n_layers), can_hide),
    )


def _speed(cluster: Cluster, members: int, stride: int, *, is_ring: bool = True) -> float:
    """Bytes per second of each of a group's members, which are `stride` devices apart.

    A ring enters and leaves each node once, through the network cards of all its members there.
    """
    if members * stride <= cluster.devices_per_node:
        return cluster.bytes_per_second_inside
    members_per_node = max(1, cluster.devices_per_node // stride) if is_ring else 1
    return min(cluster.bytes_per_second_inside, members_per_node * cluster.bytes_per_second_between)


def efficiency(update: Update, cluster: Cluster, step: Step) -> float:
    """How much of n times the speed of one device n devices reach."""
    return update.seconds / (cluster.n_devices * step.seconds)


def layouts(update: Update, cluster: Cluster) -> dict[str, Layout | None]:
    """Each way with the smallest group that has room for the model, else with the largest. None where rows, heads or
    layers cannot be divided so. A tp group stays in a node, as its devices send in every layer.
    """
    n, per_node = cluster.n_devices, min(cluster.n_devices, cluster.devices_per_node)
    tensor = [t for t in range(2, per_node + 1) if per_node % t == update.n_kv_heads % t == 0]
    stages = [p for p in range(2, update.n_layers + 1) if update.n_layers % p == 0]
    both = sorted(((t, p) for t in tensor for p in stages), key=lambda pair: (pair[0] * pair[1], -pair[0]))

    def chosen(groups: list[tuple[int, int]]) -> Layout | None:
        possible = [Layout(n // (t * p), t, p) for t, p in groups if n % (t * p) == 0 == update.rows % (n // (t * p))]
        room = [each for each in possible if memory_of(update, each).total <= cluster.memory_bytes_per_device]
        return next(iter(room or reversed(possible)), None)

    ddp = chosen([(1, 1)])
    fsdp = ddp and Layout(n, is_sharded=True)
    tp, pp = chosen([(t, 1) for t in tensor]), chosen([(1, p) for p in stages])
    return {"ddp": ddp, "fsdp": fsdp, "tp": tp, "pp": pp, "tp+pp": chosen(both)}
