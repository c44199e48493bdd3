"""PEFT beside transformers computes what our runs compute: its adapters here, and ours there, merged and not."""

import importlib
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import pellucid as api
from exchange.peft_folders import CLASSES, N_TOKENS, save_model
from pellucid.checkpoint.run_directory import find_step_directory
from pellucid.checkpoint.step_directory import read_checkpoint
from pellucid.checkpoint.training_state import load_model_tensors
from pellucid.model.build import build_model
from pellucid.trained import base_in

peft = pytest.importorskip("peft")

RANKS = {"rank_pattern": {"layers.1.mlp.down_proj": 2, "h.1.mlp.c_fc": 2}}
KINDS = {
    "plain": {},
    "by patterns": {**RANKS, "alpha_pattern": {"q_proj": 5, "c_attn": 5}},
    "rslora": {"use_rslora": True, **RANKS},
}


@pytest.fixture(scope="module")
def transformers():
    return importlib.import_module("transformers")


def load_base(transformers, folder: Path):
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def unmerged(run: api.Run):
    """The model as it is trained, with its adapter beside the base."""
    model = build_model(run.config.model, run.tokenizer.vocab_size)
    base_in(find_step_directory(*run.config.base_run)).load_into(model, run.config)
    load_model_tensors(model, read_checkpoint(run.directory).model, "")
    return model.eval()


@torch.no_grad()
def assert_all_equal(run: api.Run, theirs) -> None:
    """Our logits and those of PEFT, each merged and not, to 1e-5 of the largest."""
    tokens_BT = torch.randint(N_TOKENS, (2, 16), generator=torch.Generator().manual_seed(0))
    logits = [theirs.eval()(tokens_BT).logits, unmerged(run)(tokens_BT), run.model(tokens_BT)]
    logits.append(theirs.merge_and_unload()(tokens_BT).logits)
    for found in logits[1:]:
        assert (found - logits[0]).abs().max() < 1e-5 * logits[0].abs().max().clamp(min=1)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *((name, "plain") for name in CLASSES),
        *((name, "by patterns") for name in ("GPT2", "Llama")),
        ("Llama", "rslora"),
    ],
)
def test_an_adapter_of_peft_computes_the_same_here(transformers, tmp_path, name, kind):
    save_model(transformers, name, tmp_path / "base")
    config = peft.LoraConfig(r=3, lora_alpha=7, target_modules="all-linear", task_type="CAUSAL_LM", **KINDS[kind])
    theirs = peft.get_peft_model(load_base(transformers, tmp_path / "base"), config)
    with torch.no_grad():
        for parameter_name, parameter in theirs.named_parameters():
            parameter += 0.1 * torch.randn_like(parameter) if "lora_" in parameter_name else 0
    theirs.save_pretrained(tmp_path / "adapter")
    api.import_model(tmp_path / "base", tmp_path / "run")
    mine = api.import_model(tmp_path / "adapter", tmp_path / "mine", base=tmp_path / "run")
    assert_all_equal(mine, theirs)


TUNE = ("train", "fine_tune", "corpus.files=corpus.txt", "start_from=small_run", "train.steps=3")
TUNE += ("schedule.warmup_steps=0", "--run-dir", "mine")


@pytest.mark.parametrize("name", ["GPT2", "Llama"])
def test_a_model_is_imported_tuned_on_a_text_and_its_adapter_works_beside_it_in_peft(
    transformers, workplace, pellucid, name
):
    """The way of docs/ecosystem.md: a model of transformers, an own text, an adapter, and back."""
    save_model(transformers, name, Path("small"))
    for command in (
        ("import", "small", "small_run"),
        (*TUNE, "adapter={type: lora}", "optimizer.lr=1e-2"),
        ("export", "mine", "adapter", "--to", "peft", "--base", "small"),
        ("export", "mine", "whole", "--to", "hf"),
    ):
        done = pellucid(*command)
        assert done.exit_code == 0, done.stderr
    mine = api.load("mine")
    factors = load_file("adapter/adapter_model.safetensors")
    assert any(tensor.any() for tensor_name, tensor in factors.items() if "lora_B" in tensor_name)
    theirs = peft.PeftModel.from_pretrained(load_base(transformers, Path("small")), "adapter")
    assert_all_equal(mine, theirs)
    by_itself = load_base(transformers, Path("adapter"))  # transformers looks for the base and adds the adapter
    tokens_BT = torch.randint(N_TOKENS, (2, 16))
    with torch.no_grad():
        torch.testing.assert_close(by_itself(tokens_BT).logits, mine.model(tokens_BT), rtol=1e-5, atol=1e-5)
        whole = load_base(transformers, Path("whole"))
        torch.testing.assert_close(whole(tokens_BT).logits, mine.model(tokens_BT), rtol=1e-5, atol=1e-5)


def test_the_same_run_writes_in_llama_cpp_what_it_writes_here(transformers, workplace, pellucid):
    pytest.importorskip("xllamacpp")
    llama_cpp = importlib.import_module("measurements.llama_cpp")
    save_model(transformers, "Llama", Path("small"))
    for command in (
        ("import", "small", "small_run"),
        TUNE,
        ("export", "mine", "one_file", "--to", "gguf"),
    ):
        done = pellucid(*command)
        assert done.exit_code == 0, done.stderr
    ours = pellucid("generate", "mine", "--prompt", "The fox", "--greedy", "--max-new-tokens", "8", "--json")
    server = llama_cpp.served(Path("one_file/model.gguf"), context=16, in_float32=True)
    asked = {"prompt": "The fox", "n_predict": 8, "temperature": 0.0}
    [answer] = server.handle_completions(asked)["choices"]
    assert answer["text"] == json.loads(ours.stdout)["samples"][0]["completion"]
