"""Runs with an adapter and runs of few bits, from the first step to the text that they write."""

import json
import shutil
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import pellucid as api
import strikes
from damage import sign
from pellucid import failpoints
from pellucid.adapters.quantized import QuantizedLinear, quantize
from pellucid.checkpoint.run_directory import find_step_directory
from pellucid.checkpoint.step_directory import Checkpoint, read_checkpoint
from pellucid.config.load import load_run_config
from pellucid.cost.meter import MemoryBytes
from pellucid.files import discard, sha256
from pellucid.model.build import build_model
from pellucid.runs.cost_of_run import cost_of_run
from pellucid.runs.train_run import train_run
from pellucid.trained import load_trained_model
from pellucid.training.metrics import read_rows
from policy_run import PPO, make_policy_place
from tiny import CPU_FLOAT32
from tiny_run import SPEECHES
from tiny_run import assert_one_error_line as refused

WITH_ADAPTER = """\
name: adapted
start_from: base
corpus: {type: text, files: [speeches.txt], separator: "\\n\\n"}
data: {packing: documents}
adapter: {type: lora, rank: 2, alpha: 4}
optimizer: {type: adamw, lr: 1e-2}
schedule: {type: constant}
train: {steps: 6, batch_size: 4, precision: fp32, device: cpu, log_every_steps: 1, processes: 1}
evaluation: {every_steps: 2}
sample: {n_samples: 1, max_new_tokens: 4}
checkpoint: {every_steps: 2, keep_last: 5, snapshots: 3}
"""
PROMPT = ("--prompt", "A fox asked", "--max-new-tokens", "12", "--greedy")


@pytest.fixture(scope="module")
def made(tiny_place: Path, tmp_path_factory) -> Path:
    """A folder with a finished run `base`, its copy `codes` in 4 bits, and one with an adapter on each."""
    folder = tmp_path_factory.mktemp("adapters")
    shutil.copytree(tiny_place, folder, dirs_exist_ok=True)
    (folder / "speeches.txt").write_text(SPEECHES)
    (folder / "adapted.yaml").write_text(WITH_ADAPTER)
    options = {"resume": False, "overwrite": False, "note": print}
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        api.load("base").quantize("codes", "nf4")
        for run, changes in {"adapted": (), "on-codes": ("start_from=codes",)}.items():
            train_run(load_run_config(Path("adapted.yaml"), changes), Path("data"), Path(run), **options)
    return folder


@pytest.fixture
def place(made: Path, workplace: Path) -> Path:
    shutil.copytree(made, workplace, dirs_exist_ok=True)
    return workplace


def weights_file(run: Path) -> Path:
    return find_step_directory(run, "latest") / "model.safetensors"


def loss(pellucid, run: str) -> float:
    done = pellucid("evaluate", run, "--json")
    assert done.exit_code == 0, done
    return json.loads(done.stdout)["loss_nats_per_token"]


@pytest.mark.parametrize("run", ["adapted", "on-codes"])
def test_a_checkpoint_holds_the_adapter_alone_and_the_hash_of_its_base(place: Path, run: str):
    tensors, state = load_file(weights_file(place / run)), weights_file(place / run).with_name("state.json")
    assert {name.rpartition(".")[2] for name in tensors} == {"A_RI", "B_OR"}
    moments = load_file(weights_file(place / run).with_name("optimizer.safetensors"))
    assert {name.rpartition("/")[0] for name in moments} == tensors.keys()
    base = find_step_directory(place / {"adapted": "base", "on-codes": "codes"}[run], "best")
    assert json.loads(state.read_text())["base_sha256"] == sha256(base / "model.safetensors")


@pytest.mark.parametrize("run", ["adapted", "on-codes"])
def test_an_adapter_learns_and_is_loaded_merged(place: Path, pellucid, run: str):
    rows = read_rows(place / run / "metrics.jsonl")
    assert rows[-1]["val_loss"] < rows[0]["train_loss"] - 0.1
    trained = load_trained_model(find_step_directory(place / run, "latest"))
    assert {type(m).__name__ for n, m in trained.model.named_modules() if ".W_" in n} == {"Linear"}
    done = json.loads(pellucid("evaluate", run, "--checkpoint", "latest", "--json").stdout)
    assert done["loss_nats_per_token"] == pytest.approx(rows[-1]["val_loss"], abs=1e-5)
    for command in (
        ("generate", run, *PROMPT),
        ("generate", run, *PROMPT, "--checkpoint", "1"),  # a snapshot
        ("explain", run),
        ("verify", run),
        ("export", run, "exported", "--to", "hf"),
        ("export", {"adapted": "base", "on-codes": "codes"}[run], "its-base", "--to", "hf"),
        ("export", run, "adapter", "--to", "peft", "--base", "its-base"),
    ):
        done = pellucid(*command)
        assert done.exit_code == 0, done.stderr
    words = "is not the same as in the run of the base; name the export of the run that it started from"
    refused(pellucid("export", run, "out", "--to", "peft", "--base", "exported"), 2, "exported: ", words)


@pytest.mark.parametrize("run", ["adapted", "on-codes"])
def test_a_merged_run_needs_no_other_and_writes_the_same(place: Path, pellucid, run: str):
    expected, text = loss(pellucid, run), pellucid("generate", run, *PROMPT).stdout
    merged = pellucid("merge", run, "--out", "merged")
    assert (merged.exit_code, merged.stdout) == (0, "merged\n"), merged
    for base in ("base", "codes", run):
        shutil.rmtree(place / base)
    assert loss(pellucid, "merged") == pytest.approx(expected, abs=1e-6)
    assert pellucid("generate", "merged", *PROMPT).stdout == text
    assert pellucid("verify", "merged").exit_code == 0
    config = load_run_config(place / "merged/config.yaml")
    assert (config.adapter, config.quantization) == (None, "none")
    assert pellucid("train", "adapted.yaml", "start_from=merged", "--run-dir", "next").exit_code == 0


def test_a_quantized_run_computes_with_the_values_of_its_codes(place: Path, pellucid):
    done = pellucid("quantize", "base", "--to", "nf4-double", "--out", "few", "--json")
    assert done.exit_code == 0, done
    sizes = json.loads(done.stdout)
    assert sizes["bits_before"] == sizes["model_bits_before"] == 32
    assert 4.2 <= sizes["bits_after"] < sizes["model_bits_after"]
    model = load_trained_model(find_step_directory(place / "base", "best")).model
    quantize(model, "nf4-double")
    found = load_file(weights_file(place / "few"))
    assert found.keys() == model.state_dict().keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in model.state_dict().items())
    trained = load_trained_model(find_step_directory(place / "few", "best"))
    tokens = torch.arange(20)[None]
    assert not any(isinstance(module, QuantizedLinear) for module in trained.model.modules())
    torch.testing.assert_close(trained.model(tokens), model(tokens))
    assert loss(pellucid, "few") == pytest.approx(loss(pellucid, "base"), abs=0.1)
    for command in (("generate", "few", *PROMPT), ("verify", "few"), ("export", "few", "exported", "--to", "hf")):
        assert pellucid(*command).exit_code == 0, command


def test_quantize_prints_what_it_saves(place: Path, pellucid):
    done = pellucid("quantize", "base", "--to", "int8", "--out", "few")
    layers, whole = done.stdout.splitlines()[1:]
    n_layers = 2 * 12 * 16 * 16
    assert layers.split() == ["linear", "layers", "inside", "blocks", f"{n_layers:,}", "32.000", "8.500"]
    n_whole = sum(p.numel() for p in build_model(load_run_config(place / "base/config.yaml").model, 300).parameters())
    after = (8.5 * n_layers + 32 * (n_whole - n_layers)) / n_whole
    assert whole.split() == ["the", "whole", "model", f"{n_whole:,}", "32.000", f"{after:.3f}"]


@pytest.mark.parametrize("moment", ["before it is read", "after it was read"])
@pytest.mark.parametrize(
    "command",
    [("merge", "adapted", "--out", "made"), ("generate", "base", *PROMPT)],
    ids=lambda command: command[0],
)
def test_a_checkpoint_that_training_deletes_meanwhile_is_no_failure(
    place: Path, pellucid, monkeypatch, command: tuple[str, ...], moment: str
):
    chosen = find_step_directory(place / command[1], "best")

    def read_once(directory: Path) -> Checkpoint:
        monkeypatch.setattr("pellucid.trained.read_checkpoint", read_checkpoint)
        assert directory.samefile(chosen)
        if moment == "before it is read":
            discard(chosen)
        checkpoint = read_checkpoint(directory)
        discard(chosen)
        return checkpoint

    monkeypatch.setattr("pellucid.trained.read_checkpoint", read_once)
    done = pellucid(*command)
    assert done.exit_code == 0, done
    assert not chosen.exists()
    if command[0] == "merge":
        assert (find_step_directory(place / "made", "best").name == chosen.name) == (moment == "after it was read")
        assert pellucid("verify", "made").exit_code == 0


def test_a_run_with_an_adapter_that_ends_anywhere_and_is_resumed_ends_with_the_same_bytes(
    place: Path, pellucid, monkeypatch
):
    train = ("train", "adapted.yaml", "start_from=codes", "--resume", "--run-dir", "killed")
    for point, nth in [("update", 3), ("rename checkpoint", 1), ("write model.safetensors", 1)]:
        with monkeypatch.context() as patch:
            patch.setattr(failpoints, "reached", failpoints.reached)  # put back afterwards
            strikes.at_point(partial(sys.exit, 9), point, nth)
            assert pellucid(*train).exit_code == 9
    done = pellucid(*train)
    assert done.exit_code == 0, done
    for name in ("model.safetensors", "optimizer.safetensors"):
        again, whole = (weights_file(place / each).with_name(name).read_bytes() for each in ("killed", "on-codes"))
        assert again == whole


def test_an_adapter_finds_its_base_by_the_hash_even_if_another_step_is_the_best_by_now(place: Path, pellucid):
    text = pellucid("generate", "adapted", *PROMPT).stdout
    best = find_step_directory(place / "base", "best")
    state = json.loads((best / "state.json").read_text())
    (best / "state.json").write_text(json.dumps({**state, "val_loss": 1e9}))
    sign(best)
    assert find_step_directory(place / "base", "best") != best
    assert pellucid("generate", "adapted", *PROMPT).stdout == text


def test_an_adapter_works_from_any_folder_and_moves_with_its_base(place: Path, pellucid, monkeypatch):
    text = pellucid("generate", "adapted", *PROMPT).stdout
    (place / "elsewhere").mkdir()
    monkeypatch.chdir(place / "elsewhere")
    assert pellucid("generate", "../adapted", *PROMPT).stdout == text
    for name in ("base", "adapted"):
        shutil.move(place / name, place / "elsewhere/moved" / name)
    monkeypatch.chdir("/")
    assert pellucid("generate", place / "elsewhere/moved/adapted", *PROMPT).stdout == text
    shutil.move(place / "elsewhere/moved/base", place / "away")
    gone = pellucid("generate", place / "elsewhere/moved/adapted", *PROMPT)
    refused(gone, 4, f"still needs, are neither here nor in {place.resolve() / 'elsewhere/moved/base'}; bring")


def test_a_base_that_is_gone_or_is_another_is_refused_in_one_line(place: Path, pellucid):
    resume = ("train", "adapted/config.yaml", "train.steps=8", "--run-dir", "adapted", "--resume")
    assert pellucid("train", "tiny.yaml", "seed=1", "--run-dir", "other").exit_code == 0
    for step in (place / "base").glob("step-*"):
        shutil.rmtree(step)
    for command in (("generate", "adapted"), ("merge", "adapted", "--out", "merged"), resume):
        words = "error: base: the weights that this run started from, and still needs, are no longer here; bring"
        refused(pellucid(*command), 4, words)
    damaged = pellucid("verify", "adapted")
    assert damaged.exit_code == 4
    assert "still needs, are no longer here" in damaged.stdout
    assert damaged.stderr.endswith("bring that checkpoint back\n")  # not: train again with --overwrite
    for step in (place / "other").glob("step-*"):
        shutil.move(step, place / "base" / step.name)
    refused(pellucid("generate", "adapted"), 4, "error: base: the weights that this run started from")


def test_bad_adapters_and_bad_formats_are_one_line_before_anything_is_written(place: Path, pellucid):
    cases = {
        "adapter.rank=17": "adapter.rank: 17 is not from 1 to 16, the shorter side of W_Q",
        "adapter.targets=[W_Q, W_gate]": "no linear layer inside a block is named 'W_gate'; choose among W_1, W_2, W_K",
        "start_from=codes quantization=none": "quantization: none does not fit the weights of codes, nf4; leave it out",
        "start_from=codes adapter=null": "quantization: nf4 weights are frozen, and there is nothing else to train",
    }
    for changes, words in cases.items():
        split = changes.split(" ") if "start_from" in changes else [changes]
        refused(pellucid("train", "adapted.yaml", *split, "--run-dir", "bad"), 2, words)
        assert not list((place / "bad").glob("step-*")), changes
    refused(pellucid("train", "tiny.yaml", "adapter={type: lora}", "--run-dir", "bad"), 2, "adapter", "start_from: RUN")
    refused(pellucid("train", "tiny.yaml", "quantization=nf4", "--run-dir", "bad"), 2, "quantization: nf4 weights")


def test_what_cannot_be_merged_or_quantized_is_one_line(place: Path, pellucid):
    merge = ("merge", "base", "--out", "merged")
    refused(pellucid(*merge), 2, "error: base: no adapter to merge: its weights are plain; use the run as it is")
    quantize = ("quantize", "codes", "--to", "int8", "--out", "few")
    refused(pellucid(*quantize), 2, "error: codes: its weights are nf4 already; quantize the run that")
    refused(pellucid("quantize", "base", "--to", "nf4", "--out", "adapted"), 2, "adapted: is there already")
    refused(pellucid("quantize", "base", "--to", "nf3", "--out", "few"), 2, "nf3")
    bigram = "model={type: bigram, context_length: 32}"
    assert pellucid("train", "tiny.yaml", bigram, "train.steps=2", "--run-dir", "table").exit_code == 0
    quantize = ("quantize", "table", "--to", "nf4", "--out", "few")
    refused(pellucid(*quantize), 2, "model.type: bigram has no linear layer inside blocks; quantize a decoder")
    assert not (place / "few").exists()


def test_a_plain_base_is_quantized_on_the_way_if_the_config_says_so(place: Path, pellucid):
    """QLoRA in one step: the same as from the run that `quantize` made."""
    done = pellucid("train", "adapted.yaml", "quantization=nf4", "--run-dir", "on-the-way")
    assert done.exit_code == 0, done
    ours, theirs = (load_file(weights_file(place / run)) for run in ("on-the-way", "on-codes"))
    assert all(torch.equal(ours[name], tensor) for name, tensor in theirs.items())


def test_the_next_run_starts_from_an_adapter_as_from_its_merged_weights(place: Path, pellucid):
    assert pellucid("merge", "on-codes", "--out", "merged").exit_code == 0
    for start in ("on-codes", "merged"):
        arguments = ("train", "adapted.yaml", f"start_from={start}", "train.steps=2", "--run-dir", f"next-{start}")
        assert pellucid(*arguments).exit_code == 0
    first, second = (load_file(weights_file(place / f"next-{start}")) for start in ("on-codes", "merged"))
    assert all(torch.equal(first[name], tensor) for name, tensor in second.items())


def test_a_checkpoint_that_starts_from_itself_is_refused(place: Path, pellucid):
    step = find_step_directory(place / "adapted", "latest")
    config = (step / "config.yaml").read_text().replace("start_from: base", "start_from: adapted")
    (step / "config.yaml").write_text(config)
    state = json.loads((step / "state.json").read_text())
    (step / "state.json").write_text(json.dumps({**state, "base_sha256": sha256(step / "model.safetensors")}))
    sign(step)
    refused(pellucid("generate", str(step)), 4, "damaged: it starts from itself")


def test_a_policy_learns_through_an_adapter_over_four_bits_and_resumes_to_the_same_bytes(workplace: Path, pellucid):
    make_policy_place(workplace)
    adapter = ("adapter={type: lora, rank: 2}", "quantization=nf4-double")
    train = ("train", "policy.yaml", PPO, *adapter, "train.steps=5", "--run-dir")
    whole = pellucid(*train, "whole")
    assert whole.exit_code == 0, whole
    shutil.copytree("whole", "again")
    shutil.rmtree("again/step-00000005")  # the step before is in the middle of the updates on some answers
    assert pellucid(*train, "again", "--resume").exit_code == 0
    files = [Path(run) / "step-00000005/model.safetensors" for run in ("whole", "again")]
    assert files[0].read_bytes() == files[1].read_bytes()
    kept = load_file(files[0])
    assert any(tensor.count_nonzero() for name, tensor in kept.items() if name.endswith("B_OR"))
    assert {"scalar_head.weight", "scalar_head.bias"} < kept.keys()


def test_what_a_run_with_an_adapter_takes_is_counted(place: Path):
    """The moments and gradients are of A and B alone; the weights of few bits."""

    def memory(*changes: str) -> MemoryBytes:
        return cost_of_run(load_run_config(Path("adapted.yaml"), changes), 300, CPU_FLOAT32).memory_bytes

    full, lora, qlora = memory("adapter=null"), memory(), memory("start_from=codes")
    n_adapter = 2 * 2 * (4 * (16 + 16) + 2 * (16 + 64))
    assert lora.gradients == qlora.gradients == 4 * n_adapter
    assert lora.weights == full.weights + 4 * n_adapter
    n_linear = 2 * 12 * 16 * 16
    assert qlora.weights == lora.weights - 4 * n_linear + n_linear * 4.5 / 8
    assert lora.checkpoint == 4 * n_adapter + lora.optimizer < full.checkpoint
