"""Several processes train as one does: the same rows, losses, norms and weights. Two ranks; four in `make soak`."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import together
from model.family import FAMILY
from pellucid.config.load import load_run_config
from pellucid.errors import ConfigError
from pellucid.runs.processes import choose_n_processes
from pellucid.runtime.distributed import ALONE, World, divides, share_of_update
from ranks import Ranks

FABLES = Path(__file__).parents[2] / "configs" / "fables.yaml"


@pytest.fixture(scope="module")
def ranks(tmp_path_factory, request):
    size = 4 if request.config.getoption("--soak") else 2
    ranks = Ranks(size, tmp_path_factory.mktemp("ranks"))
    yield ranks
    ranks.end()


@given(st.integers(1, 12), st.integers(1, 12), st.integers(1, 12))
def test_the_ranks_read_every_row_of_an_update_once_and_equally_many_each(n_micro_batches, batch_size, size):
    if not divides(n_micro_batches, batch_size, size):
        with pytest.raises(ConfigError, match="cannot share"):
            share_of_update(n_micro_batches, batch_size, World(0, size))
        return
    shares = [share_of_update(n_micro_batches, batch_size, World(rank, size)) for rank in range(size)]
    rows = [[(i, row) for i, part in share for row in range(batch_size)[part]] for share in shares]
    assert {len(of_rank) for of_rank in rows} == {n_micro_batches * batch_size // size}
    assert [row for of_rank in rows for row in of_rank] == [
        (i, row) for i in range(n_micro_batches) for row in range(batch_size)
    ]


@pytest.mark.parametrize("n_micro_batches", [1, 4])
def test_an_update_reads_the_same_rows_whatever_the_number_of_processes(ranks, n_micro_batches):
    together_ = [row for rows in ranks(together.rows_read, n_micro_batches) for row in rows]
    assert together_ == together.rows_read(ALONE, n_micro_batches)


@pytest.mark.parametrize("kind", [name for name, model in FAMILY.items() if model["type"] != "decoder"])
def test_every_kind_of_model_trains_together_as_alone(ranks, kind, soak):
    """In the short form an rnn shards nothing and a gru everything: their layers are those of an lstm."""
    updates, weights = together.train(ALONE, "adamw", 1, kind=kind)
    of_short_form = {"rnn": [False], "gru": [True]}
    for is_sharded in [False, True] if soak else of_short_form.get(kind, [False, True]):
        for updates_of_rank, weights_of_rank in ranks(together.train, "adamw", 1, is_sharded, kind):
            losses = [here.loss for here in updates_of_rank]
            assert losses == pytest.approx([alone.loss for alone in updates], rel=1e-12)
            for name, weight in weights.items():
                np.testing.assert_allclose(weights_of_rank[name], weight, rtol=0, atol=1e-10)


@pytest.mark.parametrize("i", range(len(together.OPTIMIZERS)), ids=together.OPTIMIZERS)
@pytest.mark.parametrize("is_sharded", [False, True], ids=["ddp", "fsdp"])
def test_losses_norms_and_weights_are_those_of_one_process(ranks, is_sharded, i, soak):
    """Rows that count different numbers of targets, a clipped gradient, five steps, float64.

    In the short form any two of optimizer, sharding and number of micro-batches meet, in the long one all three.
    """
    optimizer = list(together.OPTIMIZERS)[i]
    for n_micro_batches in [1, 4] if soak else [[1, 4][(i + is_sharded) % 2]]:
        updates, weights = together.train(ALONE, optimizer, n_micro_batches)
        for updates_of_rank, weights_of_rank in ranks(together.train, optimizer, n_micro_batches, is_sharded):
            for here, alone in zip(updates_of_rank, updates, strict=True):
                assert here.loss == pytest.approx(alone.loss, rel=1e-12)
                assert here.gradient_norm == pytest.approx(alone.gradient_norm, rel=1e-10)
                assert here.tokens == alone.tokens
            for name, weight in weights.items():
                tolerance = 1e-5 if optimizer == "muon" else 1e-10  # Muon's products are float32
                np.testing.assert_allclose(weights_of_rank[name], weight, rtol=0, atol=tolerance)


@pytest.mark.parametrize("is_sharded", [False, True], ids=["ddp", "fsdp"])
def test_documents_that_do_not_see_each_other_train_together_as_alone(ranks, is_sharded):
    updates, weights = together.train(ALONE, "adamw", 1, kind="documents")
    assert updates[0].loss != together.train(ALONE, "adamw", 1)[0][0].loss
    for updates_of_rank, weights_of_rank in ranks(together.train, "adamw", 1, is_sharded, "documents"):
        assert [here.loss for here in updates_of_rank] == pytest.approx([alone.loss for alone in updates], rel=1e-12)
        for name, weight in weights.items():
            np.testing.assert_allclose(weights_of_rank[name], weight, rtol=0, atol=1e-10)


@pytest.mark.parametrize("is_sharded", [False, True], ids=["ddp", "fsdp"])
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_experts_train_as_in_one_process_with_their_balance_loss(ranks, optimizer, is_sharded, soak):
    """On some rank nobody asks an expert that somebody asks on another."""
    if not soak and is_sharded != (optimizer == "adamw"):
        pytest.skip("long: part of `make soak`, as dense models meet every optimizer in both ways")
    updates, weights = together.train(ALONE, optimizer, 4, kind="experts")
    assert min(share for update in updates for layer in update.figures["expert_load"] for share in layer) < 0.02
    for updates_of_rank, weights_of_rank in ranks(together.train, optimizer, 4, is_sharded, "experts"):
        for here, alone in zip(updates_of_rank, updates, strict=True):
            assert here.loss == pytest.approx(alone.loss, rel=1e-12)
            assert here.gradient_norm == pytest.approx(alone.gradient_norm, rel=1e-10)
            assert here.figures["balance_loss"] == pytest.approx(alone.figures["balance_loss"], rel=1e-12)
            np.testing.assert_allclose(here.figures["expert_load"], alone.figures["expert_load"], rtol=0, atol=1e-12)
        for name, weight in weights.items():
            tolerance = 1e-5 if optimizer == "muon" else 1e-10
            np.testing.assert_allclose(weights_of_rank[name], weight, rtol=0, atol=tolerance)


def test_all_ranks_hold_the_same_weights_bit_for_bit(ranks):
    (_, first), *others = ranks(together.train, "muon", 4)
    for _, weights in others:
        assert all(np.array_equal(weights[name], first[name]) for name in first)


def test_a_nan_on_one_rank_ends_all_before_the_update(ranks):
    for what, is_as_it_was in ranks(together.meet_nan):
        assert "is not finite (nan): no update was made" in what
        assert is_as_it_was


def test_scores_are_those_of_one_process_bit_for_bit(ranks):
    alone = together.scores()
    for scores in ranks(together.scores):
        assert all(np.array_equal(here, there) for here, there in zip(scores, alone, strict=True))


def test_numbers_and_tensors_are_summed_over_all_ranks(ranks):
    n = ranks.size
    total = n * (n - 1) / 2
    assert ranks(together.sums) == [([n, total], 7 * (n - 1), [[total] * 2, [10 * total] * 3])] * n


@pytest.mark.parametrize("n_matrices", [1, 3, 4])
def test_work_that_is_shared_out_is_the_work_of_one(ranks, n_matrices):
    alone = together.products(ALONE, n_matrices)
    for of_rank in ranks(together.products, n_matrices):
        assert all(np.array_equal(here, there) for here, there in zip(of_rank, alone, strict=True))


@pytest.mark.parametrize(
    ("changes", "n"),
    [
        (["train.steps=10000"], 4),  # one for each core
        (["train.steps=10000", "train.batch_size=6"], 3),  # the most that share six rows equally
        (["train.steps=10000", "train.parallel=none"], 1),
        (["train.steps=100"], 1),  # over before they have started
        (["train.steps=100", "train.processes=2"], 2),
    ],
)
def test_a_long_run_on_a_cpu_gets_a_process_per_core(monkeypatch, changes, n):
    monkeypatch.setattr("torch.get_num_threads", lambda: 4)
    config = load_run_config(FABLES, ["train.device=cpu", *changes])
    assert choose_n_processes(config) == n


def test_on_windows_a_run_gets_one_process_unless_it_asks_for_more(monkeypatch):
    monkeypatch.setattr("torch.get_num_threads", lambda: 4)
    long, two = (load_run_config(FABLES, ["train.device=cpu", change]) for change in ("seed=1", "train.processes=2"))
    monkeypatch.setattr("sys.platform", "win32")
    assert (choose_n_processes(long), choose_n_processes(two)) == (1, 2)


def test_every_gpu_gets_a_process_and_no_process_goes_without(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.is_bf16_supported", lambda including_emulation: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert choose_n_processes(load_run_config(FABLES, [])) == 2
    with pytest.raises(ConfigError, match="3 processes need a GPU each, and this machine has 2"):
        choose_n_processes(load_run_config(FABLES, ["train.processes=3"]))
