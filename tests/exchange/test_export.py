"""An exported folder does in transformers what the run does here; nothing half-written is left."""

import json
import os
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest
import safetensors.torch
import torch

import pellucid as api
from edits import edit
from exchange.hugging_face_models import assert_same_logits
from pellucid.checkpoint.step_directory import read_checkpoint, write_checkpoint
from pellucid.checkpoint.training_state import model_tensors
from pellucid.config.load import load_run_config
from pellucid.config.shipped import find_config
from pellucid.errors import ConfigError
from pellucid.exchange.architectures import class_for
from pellucid.exchange.export import export_run
from pellucid.model.attention import MultiHeadAttention
from pellucid.model.build import build_model
from tiny_run import TINY_RUN, VERSES

END = "<|endoftext|>"
# It spells a control token, so that characters are learned that can spell it again.
TEXT = f"{VERSES}\n\nThe {END} said: 1 < 2 | no_way ."
LLAMA = ["model.norm=rms_norm", "model.activation=swiglu", "model.context_length=160", "model.dropout=0.0"]


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> api.Run:
    folder = tmp_path_factory.mktemp("run")
    (folder / "corpus.txt").write_text(TEXT, "utf-8")
    (folder / "tiny.yaml").write_text(TINY_RUN.replace("corpus.txt", str(folder / "corpus.txt")))
    rarely = ["sample.every_steps=1000", "evaluation.every_steps=1000", "checkpoint.every_steps=1000"]
    overrides = [*LLAMA, *rarely]
    return api.train(folder / "tiny.yaml", folder / "run", overrides=overrides, steps=40, data_dir=folder / "data")


@pytest.fixture(scope="module")
def exported(run, tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("exported") / "deeper" / "model"
    run.export(directory)
    return directory


def test_the_pipeline_writes_what_generate_writes(run, exported, transformers, pellucid):
    write = transformers.pipeline("text-generation", model=str(exported), device="cpu")
    for prompt in ("The red fox", ""):
        [theirs] = write(prompt, max_new_tokens=100, do_sample=False)
        ours = pellucid("generate", run.directory, "--prompt", prompt, "--greedy", "--max-new-tokens", "100")
        assert theirs["generated_text"] + "\n" == ours.stdout
    assert len(ours.stdout) > 100 or "\n\n" not in ours.stdout
    drawn = (write("")[0]["generated_text"] for _ in range(20))  # up to the end of the text, which may come at once
    assert any(len(text) > 0 for text in drawn)


def test_ids_are_those_of_the_run_also_for_text_that_spells_a_control_token(run, exported, transformers):
    tokenizer = transformers.AutoTokenizer.from_pretrained(exported)
    rng = random.Random(0)
    alphabet = [*TEXT, *map(chr, range(0x20, 0xD800)), "😀", "\u2028", "\x1f", "\r"]
    for _ in range(1000):
        parts = ["".join(rng.choices(alphabet, k=rng.randrange(12))) for _ in range(rng.randrange(4))]
        text = rng.choice(["", END, f" {END} "]).join(parts)
        ids = run.tokenizer.encode(text)
        assert tokenizer(text, add_special_tokens=False).input_ids == ids
        assert tokenizer(text).input_ids == [run.tokenizer.end_of_text, *ids]
        assert tokenizer.decode(ids) == text
    assert tokenizer.bos_token == tokenizer.eos_token == END
    assert tokenizer.model_max_length == run.model.context_length


def test_the_weights_are_those_of_the_run_in_the_precision_asked_for(run, exported, transformers, tmp_path):
    assert_same_logits(run.model, transformers.AutoModelForCausalLM.from_pretrained(exported))
    run.export(tmp_path / "half", precision="bf16")
    half = safetensors.torch.load_file(tmp_path / "half" / "model.safetensors")
    assert {tensor.dtype for tensor in half.values()} == {torch.bfloat16}
    whole = safetensors.torch.load_file(exported / "model.safetensors")
    assert all(torch.equal(half[name], tensor.bfloat16()) for name, tensor in whole.items())


def test_no_number_becomes_infinite_in_a_smaller_format(workplace, pellucid, tmp_path):
    """Beside QK-norm a squared ReLU is written with a gate of 4,096 W_1, so that a weight of 20 is enough."""
    run = api.load(trained(pellucid, "model.activation=relu_squared", "model.norm=rms_norm", "model.qk_norm=true"))
    with torch.no_grad():
        run.model.blocks[0].feed_forward.sublayer.W_1.weight[0, 0] = 20.0
    saved = read_checkpoint(run.directory)
    (tmp_path / "large").mkdir()
    write_checkpoint(tmp_path / "large", replace(saved, model=model_tensors(run.model)))
    refused = pellucid("export", "large", "out", "--to", "hf", "--precision", "fp16")
    words = r"^error: --precision fp16: blocks.0.feed_forward.sublayer.W_gate.weight holds numbers beyond 65,504; "
    assert_refused_whole(refused, 2, words)
    assert pellucid("export", "large", "out", "--to", "hf", "--precision", "bf16").exit_code == 0


def test_a_batch_of_prompts_of_different_length_is_continued_as_each_is_alone(run, exported, transformers):
    tokenizer = transformers.AutoTokenizer.from_pretrained(exported)
    model = transformers.AutoModelForCausalLM.from_pretrained(exported)

    def written(texts):
        batch = tokenizer(texts, return_tensors="pt", padding=True)
        new = model.generate(**batch, do_sample=False, max_length=None, max_new_tokens=20)[:, batch.input_ids.size(1) :]
        return tokenizer.batch_decode(new, skip_special_tokens=True)

    prompts = ["The", "The red fox said", "A"]
    assert written(prompts) == [written([prompt])[0] for prompt in prompts]


def test_the_line_of_the_card_warns_of_nothing(exported, transformers, caplog):
    card = (exported / "README.md").read_text("utf-8")
    [code] = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    transformers.logging.enable_propagation()
    exec(compile(code.replace("DIR", str(exported)), "README.md", "exec"), {})
    assert [record.message for record in caplog.records if "max_length" in record.message] == []


def test_the_card_says_what_the_model_is_and_how_good(run, exported):
    card = (exported / "README.md").read_text("utf-8")
    front, _, rest = card.removeprefix("---\n").partition("---\n")
    assert "license: unknown\n" in front
    assert "library_name: transformers\n" in front
    [loss] = re.findall(r"\| validation loss \| ([\d.]+) nats per token \|", rest)
    [row] = [row for row in run.metrics if row["step"] == run.step and row.get("val_loss") is not None]
    assert float(loss) == pytest.approx(row["val_loss"], abs=1e-4)
    assert "context_length: 160" in rest
    assert f"exported from step {run.step}" in rest
    assert "| written as | LlamaForCausalLM |" in rest
    assert "written in another way" not in rest
    assert "in this folder |" not in rest
    assert "  - corpus.txt\n" in rest, "where the text lies is nobody else's business"
    assert str(run.directory.parent) not in rest


def test_the_card_says_what_was_rewritten_and_counts_the_numbers_of_both(workplace, pellucid):
    demo = [
        "model.activation=relu_squared",
        "model.qk_norm=true",
        "model.position={type: rope, unrotated_last_layers: 1}",
    ]
    pellucid("export", trained(pellucid, *demo, "corpus.files=[corpus.txt]"), "demo", "--to", "hf")
    card = Path("demo/README.md").read_text("utf-8")
    assert "| written as | Qwen3ForCausalLM |" in card
    assert "docs/ecosystem.md#one-function-two-names" in card
    for change in ("`norm`: layer_norm became rms_norm", "`activation`: relu_squared became swiglu"):
        assert change in card
    assert "`position.unrotated_last_layers`: 1 became 0" in card
    [there] = re.findall(r"\| numbers in this folder \| ([\d,]+): ", card)
    written = safetensors.torch.load_file("demo/model.safetensors")
    assert int(there.replace(",", "")) == sum(tensor.numel() for tensor in written.values())
    [own] = re.findall(r"\| parameters \| ([\d,]+) \|", card)
    assert int(own.replace(",", "")) == sum(each.numel() for each in api.load("checkpoints/tiny").model.parameters())


def test_an_export_comes_back_as_the_run_and_leaves_again_as_the_same_bytes(run, exported, tmp_path):
    back = api.import_model(exported, tmp_path / "back")
    assert back.tokenizer.to_json() == run.tokenizer.to_json()
    assert all(torch.equal(a, b) for a, b in zip(back.model.parameters(), run.model.parameters(), strict=True))
    back.export(tmp_path / "again")
    for file in exported.iterdir():
        if file.name != "README.md":  # which tells the run's name
            assert (tmp_path / "again" / file.name).read_bytes() == file.read_bytes(), file.name
    card = (tmp_path / "again" / "README.md").read_text("utf-8")
    assert "A decoder-only transformer, imported, exported from step 0" in card
    assert "context_length: 160" in card
    for claim in ("trained on |", "optimizer:"):
        assert claim not in card


def trained(pellucid, *overrides: str) -> str:
    assert pellucid("train", "tiny.yaml", "train.steps=2", *overrides, "--overwrite").exit_code == 0
    return "checkpoints/tiny"


@pytest.mark.parametrize(
    ("override", "knob"),
    [
        ("model={type: bigram, context_length: 32}", "model.type: bigram"),
        ("model.norm_placement=post", "model.norm_placement: "),
    ],
)
def test_what_others_have_no_name_for_is_refused_by_the_name_of_its_knob(workplace, pellucid, override, knob):
    refused = pellucid("export", trained(pellucid, override), "out", "--to", "hf")
    assert refused.exit_code == 2
    assert refused.stderr.splitlines()[-1].startswith(f"error: {knob}")
    assert not Path("out").exists()


@pytest.fixture(scope="module")
def like_the_demo(tmp_path_factory) -> Path:
    """A run whose model has all that is edited below."""
    folder = tmp_path_factory.mktemp("demo")
    (folder / "corpus.txt").write_text(VERSES)
    (folder / "tiny.yaml").write_text(TINY_RUN.replace("corpus.txt", str(folder / "corpus.txt")))
    demo = ["model.activation=relu_squared", "model.norm=rms_norm"]
    api.train(folder / "tiny.yaml", folder / "run", overrides=demo, steps=2, data_dir=folder / "data")
    return folder / "run"


def assert_no_format_takes(run: Path, folder: Path) -> None:
    for to in ("hf", "gguf"):
        with pytest.raises(ConfigError, match=r"^model: .*; export a model without it$"):
            export_run(run, folder / "out", to=to)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("name", ["causal_mask", "relu_squared"])
def test_an_edited_model_is_not_exported_as_if_it_were_none(like_the_demo, monkeypatch, tmp_path, name):
    """Other edits: test_single_token.py."""
    edit(monkeypatch, name)
    assert_no_format_takes(like_the_demo, tmp_path)


class Doubled(MultiHeadAttention):
    def gather(self, *inputs):
        return 2 * super().gather(*inputs)


OWN_PARTS = {"MultiHeadAttention": Doubled, "relu_squared": lambda x: x.relu() ** 3}


@pytest.mark.parametrize("name", OWN_PARTS)
def test_a_part_of_one_s_own_is_not_exported_as_what_stood_in_its_place(like_the_demo, monkeypatch, tmp_path, name):
    monkeypatch.setattr(f"pellucid.model.build.{name}", OWN_PARTS[name])
    assert_no_format_takes(like_the_demo, tmp_path)


def assert_refused_whole(result, exit_code: int, said: str) -> None:
    """One line, and nothing new lies in the folder."""
    assert result.exit_code == exit_code
    [line] = [line for line in result.stderr.splitlines() if not line.startswith("note:")]
    assert re.search(said, line), line
    assert not list(Path().rglob(".tmp-*")) + list(Path().rglob(".trash-*"))


def test_a_bad_place_or_a_full_disk_leaves_nothing_behind(workplace, pellucid, monkeypatch):
    run = trained(pellucid, *LLAMA)
    Path("full").mkdir()
    Path("full/mine.txt").write_text("mine")
    Path("file").write_text("mine")
    for place in ("full", "file"):
        assert_refused_whole(pellucid("export", run, place, "--to", "hf"), 2, f"{place}: is there already")
    assert os.listdir("full") == ["mine.txt"]
    assert_refused_whole(pellucid("export", "nowhere", "out", "--to", "hf"), 4, "nowhere: no such run")
    assert_refused_whole(pellucid("export", run, "out", "--to", "onnx"), 2, "'--to': 'onnx' is not one of")
    with monkeypatch.context() as patch:
        patch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 10_000}))
        assert_refused_whole(pellucid("export", run, "a/b", "--to", "hf"), 5, r"not written: it needs .* are free")
    with monkeypatch.context() as patch:
        patch.setattr("safetensors.torch.save_file", lambda *arguments: no_room())
        assert_refused_whole(pellucid("export", run, "out", "--to", "hf"), 5, "out: not written: No space left")
    assert not Path("out").exists()
    assert not Path("a").exists()
    Path("empty").mkdir()
    assert pellucid("export", run, "empty", "--to", "hf").stdout == "empty\n"
    assert json.loads(Path("empty/config.json").read_text())["architectures"] == ["LlamaForCausalLM"]


def no_room() -> None:
    raise OSError(28, "No space left on device")


def test_a_run_on_ids_writes_the_same_numbers_in_transformers_and_comes_back(workplace, transformers, pellucid):
    ids = TINY_RUN.replace("bpe, vocab_size: 300", "ids").replace("type: text, files: [corpus.txt]", "type: tokens")
    (workplace / "tiny.yaml").write_text(ids.replace(', separator: "\\n\\n"', ", files: [ids.jsonl]"))
    (workplace / "ids.jsonl").write_text("".join(f"{[n, 2 * n, 3 * n % 7]}\n" for n in range(60)))
    run = trained(pellucid, *LLAMA, "model.embedding_std=0.5")
    assert pellucid("export", run, "out", "--to", "hf").exit_code == 0
    tokenizer = transformers.AutoTokenizer.from_pretrained("out")
    assert tokenizer("7 12 0", add_special_tokens=False).input_ids == [7, 12, 0]
    [theirs] = transformers.pipeline("text-generation", model="out", device="cpu")(
        "7 12 0", max_new_tokens=20, do_sample=False
    )
    ours = pellucid("generate", run, "--prompt", "7 12 0", "--greedy", "--max-new-tokens", "20").stdout
    assert theirs["generated_text"] + "\n" == ours
    assert len(ours.split()) > 10
    assert pellucid("import", "out", "back").exit_code == 0
    assert pellucid("generate", "back", "--prompt", "7 12 0", "--greedy", "--max-new-tokens", "20").stdout == ours
    explained = pellucid("explain", run, "--prompt", "7 12 0")
    assert " 12" in explained.stdout


def test_what_would_be_rewritten_is_refused_if_that_is_asked_and_the_page_says_how_to_train_without(pellucid, tmp_path):
    refused = pellucid("export", "demo", tmp_path / "out", "--to", "hf", "--no-rewrite")
    assert_refused_whole(refused, 2, r"^error: model\.[\w.]+: no class of transformers has \w+ here")
    assert not (tmp_path / "out").exists()
    assert_refused_whole(
        pellucid("export", "demo", tmp_path / "out", "--to", "gguf", "--no-rewrite"), 2, "leave it out"
    )
    page = (Path(__file__).parents[2] / "docs/ecosystem.md").read_text("utf-8")
    [command] = re.findall(r"^pellucid train fables (model\.norm=.*)", page, re.MULTILINE)
    overrides = [*command.split(), "model.d_model=16", "model.n_heads=2"]
    config = load_run_config(find_config(Path("fables")), overrides).model
    assert class_for(config, build_model(config, 300).state_dict()).name == "Qwen3ForCausalLM"
