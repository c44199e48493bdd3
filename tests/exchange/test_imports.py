"""A model saved by transformers becomes a run that computes the same, and leaves again as it came."""

import json
import re
import shutil
from pathlib import Path

import pytest
import safetensors.torch
import torch
from tokenizers import models

import foreign_tokenizers as foreign
import pellucid as api
from rounding import assert_equal_to_rounding

SIZES = {"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 16, "intermediate_size": 24}
GROUPED = {"num_key_value_heads": 2, "max_position_embeddings": 64}
# Of each model: its tokenizer, its config, and its ids of control tokens as the files of such models give them.
MODELS = {
    "GPT2": (foreign.gpt2, {"n_layer": 2, "n_head": 4, "n_embd": 16, "n_positions": 64}, {"bos": 309, "eos": 309}),
    "Llama": (foreign.llama, {**SIZES, **GROUPED}, {"bos": 307, "eos": [308, 309]}),
    "Qwen3": (foreign.qwen, {**SIZES, **GROUPED, "head_dim": 6}, {"bos": 305, "eos": [307, 305]}),
}
HEADS = {"GPT2": "GPT2LMHeadModel", "Llama": "LlamaForCausalLM", "Qwen3": "Qwen3ForCausalLM"}
BY_NAME = pytest.mark.parametrize("name", MODELS)


@pytest.fixture(scope="module")
def saved(transformers, tmp_path_factory):
    """Folders as `save_pretrained` writes them, made when asked for. The models have 5 rows more than tokens."""
    root, made = tmp_path_factory.mktemp("saved"), {}

    def folder_of(name):
        if name not in made:
            tokenizer, sizes, ids = MODELS[name]
            config = getattr(transformers, f"{name}Config")(
                **sizes, vocab_size=315, **{f"{kind}_token_id": id_ for kind, id_ in ids.items()}
            )
            torch.default_generator.manual_seed(0)
            model = getattr(transformers, HEADS[name])(config).eval()
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter += 0.2 * torch.randn_like(parameter)
            model.save_pretrained(root / name)
            wrapped = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer())
            wrapped.save_pretrained(root / name)
            made[name] = root / name, model
        return made[name]

    return folder_of


def assert_same(ours, theirs) -> None:
    tokens_BT = torch.randint(310, (2, 20), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert_equal_to_rounding(ours(tokens_BT), theirs(tokens_BT).logits)


@BY_NAME
def test_import_export_and_import_again_change_no_logit_and_no_byte(name, transformers, saved, tmp_path):
    folder, theirs = saved(name)
    run = api.import_model(folder, tmp_path / "run")
    assert_same(run.model, theirs)
    run.export(tmp_path / "first")
    assert_same(run.model, transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "first"))
    api.import_model(tmp_path / "first", tmp_path / "again" / "run").export(tmp_path / "second")
    for file in (tmp_path / "first").iterdir():
        same = (tmp_path / "second" / file.name).read_bytes() == file.read_bytes()
        assert same or file.name == "README.md", file.name  # it tells where the run was


@BY_NAME
def test_the_tokenizer_gives_the_same_ids_and_reserved_tokens_fill_the_rows(name, saved, tmp_path):
    library = MODELS[name][0]()
    library.encode_special_tokens = True
    tokenizer = api.import_model(saved(name)[0], tmp_path / "run").tokenizer
    for text in (foreign.TEXT, "a <|endoftext|> b <think>\n\n  <|reserved_310|>", ""):
        assert tokenizer.encode(text) == library.encode(text, add_special_tokens=False).ids
    assert tokenizer.vocab_size == 315
    assert tokenizer.control_ids[-5:] == (310, 311, 312, 313, 314)


def test_what_begins_and_what_ends_a_text_is_read_from_all_files(saved, tmp_path):
    ends = {name: api.import_model(saved(name)[0], tmp_path / name).tokenizer for name in MODELS}
    assert {name: (each.end_of_text, each.stop_ids) for name, each in ends.items()} == {
        "GPT2": (309, (309,)),
        "Llama": (307, (307, 308, 309)),
        "Qwen3": (305, (305, 307)),
    }


def test_the_greedy_text_of_an_exported_import_is_that_of_the_run(transformers, saved, tmp_path):
    run = api.import_model(saved("Llama")[0], tmp_path / "run")
    run.export(tmp_path / "out")
    write = transformers.pipeline("text-generation", model=str(tmp_path / "out"), device="cpu")
    [theirs] = write("The fox", max_new_tokens=40, do_sample=False, return_full_text=False)
    assert theirs["generated_text"] == run.generate("The fox", max_new_tokens=40, temperature=0)


def test_commands_work_on_an_imported_run(saved, workplace, pellucid):
    assert pellucid("import", saved("Llama")[0], "checkpoints/llama").stdout == "checkpoints/llama\n"
    for command in (
        ["generate", "checkpoints/llama", "--prompt", "The fox", "--max-new-tokens", "70"],
        ["evaluate", "checkpoints/llama", "--text", "corpus.txt"],
        ["explain", "checkpoints/llama", "--prompt", "The fox said.\n\nWhy?", "--attention", "0.0"],
        ["verify", "checkpoints/llama"],
        ["cost", "checkpoints/llama/config.yaml"],
    ):
        result = pellucid(*command)
        assert (result.exit_code, bool(result.stdout)) == (0, True), result.stderr
    for command in (["evaluate", "checkpoints/llama"], ["train", "checkpoints/llama/config.yaml", "--run-dir", "new"]):
        result = pellucid(*command)
        assert result.exit_code == 3
        assert "this run has no text of its own" in result.stderr


def test_fine_tuned_from_an_import_it_leaves_with_what_it_learned(transformers, saved, workplace, pellucid):
    pellucid("import", saved("Qwen3")[0], "base")
    config = Path("tiny.yaml").read_text()
    config = re.sub(r"(?m)^(tokenizer|model): .*\n", "", config) + "start_from: base\n"
    Path("fine.yaml").write_text(config)
    assert pellucid("train", "fine.yaml", "--run-dir", "fine", "optimizer.lr=1e-3").exit_code == 0
    assert pellucid("export", "fine", "out", "--to", "hf").exit_code == 0
    fine = api.load("fine")
    assert_same(fine.model, transformers.AutoModelForCausalLM.from_pretrained("out"))
    with pytest.raises(AssertionError, match="not close"):
        assert_same(fine.model, saved("Qwen3")[1])


def test_weights_in_several_files_and_in_bfloat16_are_read(saved, tmp_path):
    folder, model = saved("Llama")
    sharded = tmp_path / "sharded"
    shutil.copytree(folder, sharded)
    (sharded / "model.safetensors").unlink()
    model.save_pretrained(sharded, max_shard_size="10KB")
    assert len(list(sharded.glob("model-*.safetensors"))) > 1
    assert_same(api.import_model(sharded, tmp_path / "run").model, model)
    weights = safetensors.torch.load_file(folder / "model.safetensors")
    half = {name: tensor.bfloat16() for name, tensor in weights.items()}
    shutil.copytree(folder, tmp_path / "half")
    safetensors.torch.save_file(half, tmp_path / "half" / "model.safetensors")
    run = api.import_model(tmp_path / "half", tmp_path / "half_run")
    assert all(parameter.dtype == torch.float32 for parameter in run.model.parameters())
    assert torch.equal(run.model.embeddings.embedding_VD, half["model.embed_tokens.weight"].float())


def changed(file: str, **values):
    def change(folder: Path) -> None:
        (folder / file).write_text(json.dumps({**json.loads((folder / file).read_text()), **values}))

    return change


def without(*names: str):
    return lambda folder: [(folder / name).unlink() for name in names]


def written(file: str, content: bytes):
    return lambda folder: (folder / file).write_bytes(content)


def only_a_pickle(folder: Path) -> None:
    """It would leave a mark if anything read it as a pickle."""
    (folder / "model.safetensors").unlink()
    code = b"cbuiltins\nopen\n(S'opened'\nS'w'\ntR."
    (folder / "pytorch_model.bin").write_bytes(code)


def of_kind(change):
    """With another tokenizer: the change of GPT-2's that makes it."""

    def apply(folder: Path) -> None:
        library = foreign.gpt2()
        change(library)
        library.save(str(folder / "tokenizer.json"))

    return apply


def index_to(name: str):
    def apply(folder: Path) -> None:
        (folder / "model.safetensors").unlink()
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))

    return apply


def template_with_a_word(folder: Path) -> None:
    """It puts token 7 before a text, which is no control token."""
    file = folder / "tokenizer.json"
    description = json.loads(file.read_text())
    word = next(token for token, id_ in description["model"]["vocab"].items() if id_ == 7)
    one = [{"SpecialToken": {"id": word, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    special = {word: {"id": word, "ids": [7], "tokens": [word]}}
    template = {"type": "TemplateProcessing", "single": one, "pair": [*one, *one[1:]], "special_tokens": special}
    file.write_text(json.dumps({**description, "post_processor": template}))


BAD = {  # what is wrong with values and tensors: test_architectures.py
    "no config.json": (without("config.json"), 4, "no config.json here"),
    "config.json is no JSON": (written("config.json", b"{"), 4, "config.json: damaged: no JSON object"),
    "config.json is binary": (written("config.json", b"\xff\xfe"), 4, "config.json: cannot be read"),
    "no weights": (without("model.safetensors"), 4, "no model.safetensors here"),
    "a pickle": (only_a_pickle, 4, "a pickle, pytorch_model.bin"),
    "damaged weights": (written("model.safetensors", b"\x10" * 100), 4, "model.safetensors: damaged"),
    "an index out of the folder": (index_to("../model.safetensors"), 4, "it names no files beside it"),
    "an index to nothing": (index_to("model-1.safetensors"), 4, "model-1.safetensors: missing"),
    "no tokenizer": (without("tokenizer.json"), 3, "no tokenizer.json here"),
    "a damaged tokenizer": (written("tokenizer.json", b"{}"), 3, "tokenizer.json: damaged"),
    "another kind of tokenizer": (
        of_kind(lambda library: setattr(library, "model", models.WordPiece({"a": 0}, unk_token="a"))),
        3,
        "cannot express: its model is WordPiece",
    ),
    "more tokens than rows": (
        of_kind(lambda library: library.add_tokens([f"<{i}>" for i in range(9)])),
        3,
        "319 tokens are more than the 315 rows",
    ),
    "a template of words": (template_with_a_word, 3, "its template puts id 7, which is not a control token"),
    "tokenizer settings": (written("tokenizer_config.json", b"[]"), 3, "tokenizer_config.json: damaged"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_folder_is_refused_in_one_line_and_leaves_nothing(case, saved, workplace, pellucid):
    change, exit_code, said = BAD[case]
    shutil.copytree(saved("Llama")[0], "there")
    change(Path("there"))
    before = sorted(Path().rglob("*"))
    result = pellucid("import", "there", "runs/new")
    assert result.exit_code == exit_code
    [line] = result.stderr.splitlines()
    assert re.match("error: there.*; ", line), line
    assert said in line
    assert sorted(Path().rglob("*")) == before


@pytest.mark.parametrize("ids", [[[1]], {"a": [1]}, "1", 1e30], ids=str)
def test_ids_that_are_none_are_as_if_not_there(ids, saved, tmp_path):
    shutil.copytree(saved("Llama")[0], tmp_path / "there")
    for file in ("config.json", "generation_config.json"):
        changed(file, eos_token_id=ids, bos_token_id=ids)(tmp_path / "there")
    assert api.import_model(tmp_path / "there", tmp_path / "run").tokenizer.control_ids


def test_a_chat_template_from_elsewhere_is_not_dropped_in_silence(saved, workplace, pellucid):
    shutil.copytree(saved("Llama")[0], "in_config")
    shutil.copytree(saved("Llama")[0], "in_file")
    changed("tokenizer_config.json", chat_template="{{ messages }}")(Path("in_config"))
    Path("in_file/chat_template.jinja").write_text("{{ messages }}")
    for folder in ("in_config", "in_file"):
        done = pellucid("import", folder, f"runs/{folder}")
        words = f"warning: {folder}: its chat template is not used; to chat with it, fine-tune it on conversations\n"
        assert (done.exit_code, done.stderr) == (0, words)
    refused = pellucid("chat", "runs/in_file")
    assert refused.exit_code == 2
    assert "(a chat template that was imported is not used)" in refused.stderr
    assert pellucid("import", saved("Llama")[0], "runs/plain").stderr == ""


def test_a_bad_place_is_refused_in_one_line(saved, workplace, pellucid, monkeypatch):
    folder = saved("Llama")[0]
    Path("taken").mkdir()
    Path("taken/mine.txt").write_text("mine")
    for source, run, exit_code, said in (
        (folder, "taken", 2, "taken: is there already, and not empty"),
        (folder, "a b", 2, "'a b' is no name of a run"),
        ("nobody/nothing", "new", 4, "no such folder here, and the hub does not give it (it does not answer); "),
        ("corpus.txt", "new", 4, "corpus.txt: no such folder; "),
    ):
        result = pellucid("import", source, run)
        assert result.exit_code == exit_code
        [line] = result.stderr.splitlines()
        assert said in line
    with monkeypatch.context() as patch:
        patch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 10_000}))
        result = pellucid("import", folder, "runs/new")
    assert result.exit_code == 5
    assert "not written: it needs" in result.stderr
    assert sorted(map(str, Path().iterdir())) == ["corpus.txt", "taken", "tiny.yaml"]
