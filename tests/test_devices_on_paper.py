import dataclasses
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st
from measurements.devices import (
    Cluster,
    Layout,
    Update,
    all_reduce_bytes,
    bubble_fraction,
    efficiency,
    gather_bytes,
    layouts,
    memory_of,
    step_of,
    update_on_one_device,
)

from cost.runs import BF16, FP32, VOCAB_SIZE, run_config, small_config
from pellucid.cost.machine import Machine
from pellucid.cost.step_time import step_seconds
from pellucid.runs.cost_of_run import cost_of_run
from reference.devices_on_paper import one_forward_one_back, ring_all_reduce

MACHINE = Machine("a machine", flops_per_second=1e11, bytes_per_second=1e10, seconds_per_operation=1e-6)

sizes = st.integers(1, 10**9)
seconds = st.floats(1e-6, 1e3)
speeds = st.floats(1e3, 1e12)
updates = st.builds(
    Update,
    rows=st.sampled_from([1, 6, 64, 512, 1024]),
    rows_per_micro_batch=st.integers(1, 40),
    tokens_per_row=st.integers(1, 4096),
    n_layers=st.sampled_from([1, 2, 12, 80]),
    n_kv_heads=st.sampled_from([1, 2, 8, 12]),
    forward_passes=st.sampled_from([1, 2]),
    weight_bytes=st.integers(10**6, 10**12),
    block_weight_bytes=st.integers(1, 10**4),
    gradient_bytes=sizes,
    optimizer_bytes=sizes,
    direction_bytes=st.just(0) | sizes,
    model_flops=sizes,
    fixed_activation_bytes=st.floats(0, 1e9),
    activation_bytes_per_row=st.floats(1, 1e9),
    residual_bytes_per_row=sizes,
    seconds_per_micro_batch=st.just(0.0) | seconds,
    seconds_per_row=seconds,
    optimizer_seconds=seconds,
)
clusters = st.builds(
    Cluster,
    n_devices=st.sampled_from([1, 2, 4, 6, 64, 1024]),
    devices_per_node=st.sampled_from([1, 2, 4, 8, 6]),
    bytes_per_second_inside=speeds,
    bytes_per_second_between=speeds,
    memory_bytes_per_device=st.floats(1e6, 1e12),
    sends_while_computing=st.booleans(),
)


UPDATE = Update(
    rows=64,
    rows_per_micro_batch=8,
    tokens_per_row=1024,
    n_layers=8,
    n_kv_heads=8,
    forward_passes=1,
    weight_bytes=8_000_000,
    block_weight_bytes=900_000,
    gradient_bytes=8_000_000,
    optimizer_bytes=16_000_000,
    direction_bytes=0,
    model_flops=1,
    fixed_activation_bytes=0.0,
    activation_bytes_per_row=0.0,
    residual_bytes_per_row=0,
    seconds_per_micro_batch=0.0,
    seconds_per_row=1e-9,
    optimizer_seconds=0.0,
)


def possible_layouts(update, cluster):
    return [layout for layout in layouts(update, cluster).values() if layout is not None]


@given(st.integers(1, 8), st.integers(1, 5))
def test_a_ring_sums_and_each_device_sends_what_the_formula_says(n, chunk_bytes):
    numbers = [[100 * i + j for j in range(n)] for i in range(n)]
    sums = [sum(column) for column in zip(*numbers, strict=True)]
    sent = ring_all_reduce(numbers)
    assert numbers == [sums] * n
    assert [chunks * chunk_bytes for chunks in sent] == pytest.approx([all_reduce_bytes(n, n * chunk_bytes)] * n)
    assert 2 * gather_bytes(n, n * chunk_bytes) == pytest.approx(all_reduce_bytes(n, n * chunk_bytes))


@given(st.integers(1, 9), st.integers(1, 20), st.integers(1, 4), st.integers(1, 8))
def test_a_pipeline_acted_out_waits_and_holds_as_the_formulas_say(stages, micro_batches, forward, backward):
    end, held = one_forward_one_back(stages, micro_batches, forward, backward)
    working = micro_batches * (forward + backward)
    assert 1 - working / end == pytest.approx(bubble_fraction(stages, micro_batches))
    assert max(held) == held[0] == min(stages, micro_batches)


@pytest.mark.parametrize(("precision", "recomputes"), [(FP32, "block"), (BF16, "attention")])
def test_on_one_device_time_and_memory_are_those_of_cost(precision, recomputes):
    config = run_config(small_config(n_layers=3), gradient_accumulation_steps=4, gradient_checkpointing=recomputes)
    cost = cost_of_run(config, VOCAB_SIZE, precision)
    update = update_on_one_device(config, VOCAB_SIZE, precision, MACHINE)
    alone = Cluster(1, 1, 1.0, 1.0, inf)
    for name in ("ddp", "fsdp"):
        layout = layouts(update, alone)[name]
        step = step_of(update, alone, layout)
        assert step.seconds == pytest.approx(step_seconds(cost.step_work, MACHINE)) == pytest.approx(update.seconds)
        assert memory_of(update, layout).total == pytest.approx(cost.memory_bytes.training)
        assert step.replica_bytes == step.tensor_bytes == step.stage_bytes == 0
    assert [layouts(update, alone)[name] for name in ("tp", "pp", "tp+pp")] == [None] * 3


def test_activations_are_those_that_are_measured_at_any_number_of_rows():
    config = run_config(small_config())
    update = update_on_one_device(config, VOCAB_SIZE, BF16, MACHINE)
    few = config.model_copy(update={"train": config.train.model_copy(update={"batch_size": 3})})
    measured = cost_of_run(few, VOCAB_SIZE, BF16).memory_bytes.activations
    assert update.fixed_activation_bytes + 3 * update.activation_bytes_per_row == pytest.approx(measured, rel=0.01)


@given(updates, st.sampled_from([1, 2, 64, 512]))
def test_what_fsdp_shards_is_once_in_all_devices_together(update, n):
    update = dataclasses.replace(update, rows=512)
    ddp, fsdp = (memory_of(update, Layout(n, is_sharded=is_sharded)) for is_sharded in (False, True))
    for part in ("weights", "gradients", "optimizer"):
        assert n * getattr(fsdp, part) == pytest.approx(getattr(ddp, part))
    assert fsdp.activations == ddp.activations


@given(updates, clusters)
def test_every_way_gives_each_device_its_part_and_each_copy_whole_rows(update, cluster):
    for layout in possible_layouts(update, cluster):
        assert layout.replicas * layout.tensor * layout.stages == cluster.n_devices
        assert (
            update.rows % layout.replicas == update.n_kv_heads % layout.tensor == update.n_layers % layout.stages == 0
        )
        parts = 1 if layout.is_sharded else layout.replicas
        assert cluster.n_devices * memory_of(update, layout).weights == pytest.approx(parts * update.weight_bytes)


@given(updates, clusters)
def test_no_way_is_more_than_n_times_as_fast_and_all_work_is_done(update, cluster):
    for layout in possible_layouts(update, cluster):
        step = step_of(update, cluster, layout)
        assert 0 < efficiency(update, cluster, step) <= 1 + 1e-9
        assert cluster.n_devices * step.computing_seconds >= update.seconds * (1 - 1e-9)
        assert 0 <= step.hidden_seconds <= min(step.sending_seconds, step.computing_seconds) * (1 + 1e-9)
        assert cluster.sends_while_computing or step.hidden_seconds == 0


@given(updates, clusters, st.floats(1, 1e6))
def test_faster_connections_never_make_a_step_longer(update, cluster, factor):
    for end in ("bytes_per_second_inside", "bytes_per_second_between"):
        faster = dataclasses.replace(cluster, **{end: factor * getattr(cluster, end)})
        for layout in possible_layouts(update, cluster):
            before, after = (step_of(update, each, layout).seconds for each in (cluster, faster))
            assert after <= before * (1 + 1e-9)


@given(updates, clusters)
def test_with_endless_bandwidth_only_the_bubble_and_the_optimizer_of_each_copy_are_lost(update, cluster):
    fast = dataclasses.replace(cluster, bytes_per_second_inside=inf, bytes_per_second_between=inf)
    for layout in possible_layouts(update, fast):
        step = step_of(update, fast, layout)
        shares_optimizer = layout.is_sharded or update.direction_bytes > 0
        parts = layout.tensor * layout.stages * (layout.replicas if shares_optimizer else 1)
        rows = update.rows / layout.replicas
        all_micro_batches = step.micro_batches * update.seconds_per_micro_batch
        computing = (all_micro_batches + rows * update.seconds_per_row / layout.tensor) / layout.stages
        bubble = bubble_fraction(layout.stages, step.micro_batches)
        assert step.seconds == pytest.approx(computing / (1 - bubble) + update.optimizer_seconds / parts)


def test_the_smallest_group_with_room_for_the_model_is_taken():
    for megabytes, tensor, stages in ((32, 2, 2), (16, 2, 2), (8, 4, 4), (4, 4, 8)):
        found = layouts(UPDATE, Cluster(16, 4, 1.0, 1.0, megabytes * 1e6))
        assert (found["tp"].tensor, found["pp"].stages) == (tensor, stages)
    assert found["tp+pp"] == Layout(2, tensor=4, stages=2)


def test_a_batch_of_fewer_rows_than_devices_cannot_be_shared_out_by_rows():
    found = layouts(UPDATE, Cluster(128, 8, 1.0, 1.0, inf))
    assert found["ddp"] is found["fsdp"] is None
    assert found["tp"] == Layout(64, tensor=2)


def test_a_ring_through_whole_nodes_uses_all_their_network_cards():
    """Eight GPUs of a node send in one ring, or each in a ring of its own that carries an eighth of the gradients."""
    cluster = Cluster(64, 8, inf, 1e6, inf, sends_while_computing=False)
    one_ring, eight_rings = (step_of(UPDATE, cluster, Layout(64 // t, tensor=t)) for t in (1, 8))
    assert one_ring.sending_seconds == pytest.approx(2 * 63 / 64 * 8 / 8)
    assert eight_rings.sending_seconds == pytest.approx(2 * 7 / 8 * 8 / 8)
