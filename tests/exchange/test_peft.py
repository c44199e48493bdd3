"""Adapters of PEFT become runs, and leave again: merged there or here, they are the same model."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import pellucid as api
from exchange.peft_folders import save_adapter, save_merged, save_model
from pellucid.checkpoint.step_directory import read_checkpoint
from pellucid.exchange.folders import write_run
from tiny_run import assert_one_error_line as refused

STEPS = ("train.steps=2", "schedule.warmup_steps=0")
LAYOUTS = (
    "GPT2",
    "Llama",
    "Gemma",
    "Gemma2",
    "Gemma3",
    "GPTNeoX",
    "Phi3",
    "Granite",
    "Helium",
    "Olmo",
)  # each tells the tensors of its file in its own way
# These leave as they came: matrices side by side, each alone, beside norms that are retold, head by head.
OWN_CLASSES = ("GPT2", "Llama", "Gemma", "GPTNeoX")


@pytest.fixture(scope="module")
def made(transformers, tmp_path_factory):
    """Of a class, a folder with the folders `base` and `adapter` and their runs `runs/base` and `runs/adapted`."""
    root = tmp_path_factory.mktemp("peft")

    def folder_of(name):
        folder = root / name
        if not folder.exists():
            save_model(transformers, name, folder / "base")
            save_adapter(folder / "base", folder / "adapter", use_rslora=name == "Helium")
            api.import_model(folder / "base", folder / "runs/base")
            api.import_model(folder / "adapter", folder / "runs/adapted", base=folder / "runs/base")
        return folder

    return folder_of


@pytest.fixture
def place(made, workplace):
    """A copy of a Llama's, to work in."""
    shutil.copytree(made("Llama"), workplace, dirs_exist_ok=True)
    point_to_base(Path("adapter"))
    return workplace


def point_to_base(adapter: Path, **changes) -> None:
    file = adapter / "adapter_config.json"
    values = {**json.loads(file.read_text()), "base_model_name_or_path": "base", **changes}
    file.write_text(json.dumps(values))


def assert_same_model(run: api.Run, other: api.Run) -> None:
    ours, theirs = run.model.state_dict(), other.model.state_dict()
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        torch.testing.assert_close(tensor, theirs[name], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", LAYOUTS)
def test_an_adapter_merged_here_is_the_model_that_was_merged_there(made, tmp_path, name):
    folder = made(name)
    adapted = api.load(folder / "runs/adapted")
    save_merged(folder / "base", folder / "adapter", tmp_path / "merged")
    merged = api.import_model(tmp_path / "merged", tmp_path / "run")
    assert_same_model(adapted, merged)
    with pytest.raises(AssertionError):
        assert_same_model(adapted, api.load(folder / "runs/base"))


def with_other_factors(run: Path, folder: Path) -> api.Run:
    """The run with random factors, so that W_Q, W_K and W_V, which shared one A, have their own."""
    checkpoint = read_checkpoint(run / "step-00000000")
    torch.default_generator.manual_seed(1)
    write_run(folder, replace(checkpoint, model={n: torch.randn_like(t) for n, t in checkpoint.model.items()}))
    return api.load(folder)


@pytest.mark.parametrize("name", OWN_CLASSES)
def test_an_adapter_leaves_as_a_folder_whose_merged_model_is_the_run(made, tmp_path, name):
    folder = made(name)
    run = with_other_factors(folder / "runs/adapted", folder / "runs/other")
    run.export(tmp_path / "out", to="peft", base=folder / "base")
    save_merged(folder / "base", tmp_path / "out", tmp_path / "merged")
    assert_same_model(run, api.import_model(tmp_path / "merged", tmp_path / "run"))
    back = api.import_model(tmp_path / "out", tmp_path / "back", base=folder / "runs/base")
    assert_same_model(run, back)
    if name == "Llama":
        first, second = (load_file(each.directory / "model.safetensors") for each in (run, back))
        assert all(torch.equal(first[tensor], second[tensor]) for tensor in first)


@pytest.mark.parametrize("name", OWN_CLASSES)
def test_an_adapter_that_only_passes_through_keeps_its_ranks(made, tmp_path, name):
    """Side by side W_Q, W_K and W_V have the one A of their common matrix."""
    folder = made(name)
    api.load(folder / "runs/adapted").export(tmp_path / "out", to="peft", base=folder / "base")
    values = json.loads((tmp_path / "out/adapter_config.json").read_text())
    assert values["r"] == 3
    assert values["rank_pattern"] == values["alpha_pattern"] == {}


def test_a_run_that_adapts_few_layers_names_their_modules_alone(made, tmp_path):
    """In a GPT-2 the outputs of attention and feed-forward have one name: c_proj."""
    folder = made("GPT2")
    checkpoint = read_checkpoint(folder / "runs/adapted/step-00000000")
    kept = {name: tensor for name, tensor in checkpoint.model.items() if ".W_O." in name or ".W_V." in name}
    config = re.sub(r"(?s)targets:.*?(?=\n\w)", "targets: [W_O, W_V]", checkpoint.config_yaml)
    write_run(folder / "runs/few", replace(checkpoint, model=kept, config_yaml=config))
    run = api.load(folder / "runs/few")
    run.export(tmp_path / "out", to="peft", base=folder / "base")
    values = json.loads((tmp_path / "out/adapter_config.json").read_text())
    assert values["target_modules"] == ["attn.c_attn", "attn.c_proj"]
    save_merged(folder / "base", tmp_path / "out", tmp_path / "merged")
    assert_same_model(run, api.import_model(tmp_path / "merged", tmp_path / "run"))


def test_commands_work_on_an_imported_adapter(place, pellucid):
    imported = pellucid("import", "adapter", "mine", "--base", "runs/base")
    assert (imported.exit_code, imported.stdout) == (0, "mine\n"), imported.stderr
    text = pellucid("generate", "mine", "--prompt", "The fox", "--greedy").stdout
    assert pellucid("merge", "mine", "--out", "merged").exit_code == 0
    assert pellucid("generate", "merged", "--prompt", "The fox", "--greedy").stdout == text
    for command in (
        ("verify", "mine"),
        ("train", "fine_tune", "corpus.files=corpus.txt", "start_from=mine", "adapter={type: lora}", *STEPS),
        ("export", "mine", "out", "--to", "peft", "--base", "base"),
    ):
        done = pellucid(*command)
        assert done.exit_code == 0, done.stderr
    assert {path.name for path in Path("out").iterdir()} == {
        *("adapter_config.json", "adapter_model.safetensors", "README.md"),
    }


REFUSED = {
    "peft_type": ("IA3", "peft_type is 'IA3', and not LORA"),
    "use_dora": (True, "use_dora is True, which no adapter here has; merge it there"),
    "modules_to_save": (["lm_head"], "modules_to_save is ['lm_head'], which no adapter here has"),
    "bias": ("all", "bias is 'all', which no adapter here has"),
    "init_lora_weights": ("pissa", "init_lora_weights is 'pissa', which may have changed its base"),
    "alpha_pattern": ({"layers.[01].*": 3}, "alpha_pattern does not map plain names of modules"),
    "lora_alpha": (10**400, "alpha of model.layers.0.mlp.down_proj is 1000"),
    "base_model_name_or_path": (None, "base_model_name_or_path names no base"),
}


@pytest.mark.parametrize("key", REFUSED)
def test_an_adapter_of_another_kind_is_refused_in_one_line(place, pellucid, key):
    value, words = REFUSED[key]
    point_to_base(Path("adapter"), **{key: value})
    refused(pellucid("import", "adapter", "mine", "--base", "runs/base"), 4, f"adapter/adapter_config.json: {words}")
    assert not Path("mine").exists()


Q_PROJ = "base_model.model.model.layers.0.self_attn.q_proj"
BAD_TENSORS = [
    (f"{Q_PROJ}.lora_magnitude_vector", lambda _: torch.ones(24), "is no factor of a LoRA beside a linear layer"),
    ("base_model.model.lm_head.lora_A.weight", lambda _: torch.ones(2, 16), "A and B of lm_head are no pair"),
    (f"{Q_PROJ}.lora_A.weight", lambda _: torch.ones(7, 16), "A and B of model.layers.0.self_attn.q_proj are no pair"),
    (f"{Q_PROJ}.lora_B.weight", lambda B_OR: B_OR * torch.nan, "holds NaN or infinity"),
    (
        f"{Q_PROJ}.lora_B.weight",
        lambda B_OR: B_OR[:5].clone(),
        "adapter: A and B are not of the shape of blocks.0.attention.sublayer.W_Q.weight",
    ),
    (f"{Q_PROJ}.lora_B.weight", lambda B_OR: B_OR.to(torch.int8), "is no factor of a LoRA beside a linear layer"),
]


@pytest.mark.parametrize(("name", "change", "words"), BAD_TENSORS)
def test_tensors_that_are_no_factors_are_refused_in_one_line(place, pellucid, name, change, words):
    tensors = load_file("adapter/adapter_model.safetensors")
    save_file({**tensors, name: change(tensors.get(name))}, "adapter/adapter_model.safetensors")
    refused(pellucid("import", "adapter", "mine", "--base", "runs/base"), 4, words)
    assert not Path("mine").exists()


def test_an_adapter_beside_what_is_no_linear_layer_of_a_block_is_refused(place, pellucid):
    tensors = load_file("adapter/adapter_model.safetensors")
    head = {"lora_A": torch.ones(2, 16), "lora_B": torch.ones(310, 2)}
    tensors |= {f"base_model.model.lm_head.{letter}.weight": tensor for letter, tensor in head.items()}
    save_file(tensors, "adapter/adapter_model.safetensors")
    words = "lm_head is no linear layer inside a block here"
    refused(pellucid("import", "adapter", "mine", "--base", "runs/base"), 4, words)


def test_an_adapter_and_its_base_must_belong_together(place, pellucid):
    shutil.copytree("base", "tuned")
    weights = load_file("base/model.safetensors")
    weights["model.norm.weight"] = weights["model.norm.weight"] + 1e-3
    save_file(weights, "tuned/model.safetensors")
    other = "final_norm.weight is not the same as in the run of the base"
    export = ("export", "runs/adapted", "out", "--to", "peft")
    refused(pellucid(*export, "--base", "tuned"), 2, "tuned", other)
    point_to_base(Path("adapter"), base_model_name_or_path="tuned")
    refused(pellucid("import", "adapter", "mine", "--base", "runs/base"), 2, "tuned", other, "name with --base the run")
    assert pellucid("quantize", "runs/base", "--to", "int8", "--out", "runs/few").exit_code == 0
    point_to_base(Path("adapter"))
    refused(pellucid("import", "adapter", "mine", "--base", "runs/few"), 2, "is not the same as")
    refused(pellucid(*export), 2, "--base: missing: an adapter is of use only beside its base")
    refused(pellucid("export", "runs/base", "out", "--to", "hf", "--base", "base"), 2, "--base: hf holds the whole")
    refused(pellucid("export", "runs/base", "out", "--to", "peft", "--base", "base"), 2, "run base: it has no adapter")
    refused(pellucid("import", "adapter", "mine"), 4, "adapter: holds an adapter, and no model; import its base, and")
    point_to_base(Path("adapter"), base_model_name_or_path="a/b/gone")
    refused(pellucid("import", "adapter", "mine", "--base", "runs/base"), 4, "a/b/gone: no such folder; bring it here")
    assert not Path("out").exists()
    assert not Path("mine").exists()


def test_an_adapter_of_a_model_that_leaves_as_another_one_is_refused(workplace, pellucid):
    """The demo leaves as a Qwen3, whose matrices are others."""
    assert pellucid("export", "demo", "rewritten", "--to", "hf").exit_code == 0
    save_adapter(Path("rewritten"), Path("adapter"))
    done = pellucid("import", "adapter", "mine", "--base", "demo")
    refused(done, 2, "error: model.head_width: rewritten has no place for 32; ", "or import the merged model")
