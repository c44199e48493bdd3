"""What cannot possibly fit is refused at once; what may fit is tried."""

import sys
from pathlib import Path

import pytest

from pellucid.config.load import parse_run_config
from pellucid.config.run import RunConfig
from pellucid.cost.build import RunCost
from pellucid.errors import OutOfMemoryError
from pellucid.runtime.precision import precision_here
from pellucid.training import enough_memory
from pellucid.training.cost_of_run import cost_of_run
from pellucid.training.enough_memory import BY_FAR, LEAST_VOCABULARY, device_bytes, least_bytes, require_memory
from tiny_run import TINY_RUN

CPU = precision_here("cpu", "fp32")


def test_a_batch_that_cannot_fit_is_refused_before_anything_is_prepared(workplace, pellucid):
    result = pellucid("train", "tiny.yaml", "train.batch_size=10_000_000_000")
    assert result.exit_code == 8
    assert result.stderr.splitlines()[-1].startswith("error: memory: a micro-batch of 10,000,000,000 rows needs about ")
    assert not (workplace / "data").exists()


@pytest.mark.parametrize("change", ["train.batch_size=100", "model.d_model=2048", "model.n_layers=500"])
def test_only_what_needs_many_times_the_memory_is_refused(monkeypatch: pytest.MonkeyPatch, caplog, change: str):
    config = parse_run_config(TINY_RUN, "tiny.yaml", [change])
    needed = least_bytes(config, CPU)
    monkeypatch.setattr(enough_memory, "device_bytes", lambda _: needed // BY_FAR + 1)
    require_memory(config)
    [warning] = caplog.messages
    assert "if it does not fit, lower train.batch_size" in warning
    monkeypatch.setattr(enough_memory, "device_bytes", lambda _: 2 * needed)
    require_memory(config)
    assert caplog.messages == [warning]
    monkeypatch.setattr(enough_memory, "device_bytes", lambda _: needed // (BY_FAR + 1))
    with pytest.raises(OutOfMemoryError, match="lower train.batch_size"):
        require_memory(config)


def test_short_documents_in_a_long_context_count_as_short():
    long = parse_run_config(TINY_RUN, "tiny.yaml", ["model.context_length=1_000_000"])
    assert least_bytes(long, CPU) == least_bytes(parse_run_config(TINY_RUN, "tiny.yaml"), CPU)
    stream = parse_run_config(TINY_RUN, "tiny.yaml", ["model.context_length=1_000", "data.packing=contiguous"])
    assert least_bytes(stream, CPU) > 10 * least_bytes(long, CPU)


def test_a_usual_run_is_not_even_counted(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(enough_memory, "device_bytes", lambda _: 4 << 30)
    monkeypatch.delattr(enough_memory, "least_bytes")
    require_memory(parse_run_config(TINY_RUN, "tiny.yaml"))


def test_a_large_run_that_fits_is_counted_once(monkeypatch: pytest.MonkeyPatch):
    config = parse_run_config(TINY_RUN, "tiny.yaml", ["model.d_model=2048"])
    needed = cost_of_run(config, LEAST_VOCABULARY, CPU).memory_bytes.training
    counted = []

    def count(config: RunConfig, *others: object) -> RunCost:
        counted.append(config)
        return cost_of_run(config, *others)

    monkeypatch.setattr(enough_memory, "device_bytes", lambda _: needed)
    monkeypatch.setattr(enough_memory, "cost_of_run", count)
    require_memory(config)
    assert counted == [config]


@pytest.mark.parametrize(
    "model",
    [
        "{type: mlp, context_length: 64, window: 40, d_model: 8}",
        "{type: lstm, context_length: 64, d_model: 8}",
        "{type: bigram, context_length: 64}",
    ],
)
def test_every_model_can_be_counted(monkeypatch: pytest.MonkeyPatch, model: str):
    config = parse_run_config(TINY_RUN, "tiny.yaml", [f"model={model}"])
    monkeypatch.setattr(enough_memory, "device_bytes", lambda _: 1)
    with pytest.raises(OutOfMemoryError):
        require_memory(config)


@pytest.mark.skipif(sys.platform != "linux", reason="where containers limit memory in this way")
def test_the_limit_of_a_container_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    physical = device_bytes(CPU)
    monkeypatch.setattr(enough_memory, "LIMITS_OF_CONTAINER", [tmp_path / "memory.max", tmp_path / "absent"])
    for limit, expected in (("max", physical), ("4096", 4096)):
        (tmp_path / "memory.max").write_text(f"{limit}\n")
        assert device_bytes(CPU) == expected
