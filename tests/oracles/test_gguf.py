"""The outside witnesses: transformers and llama.cpp read our GGUF files, and compute and encode what we do."""

import importlib
import json
import random
import shutil
from collections import namedtuple
from pathlib import Path
from unicodedata import normalize

import httpx
import pytest
import torch

import foreign_tokenizers as foreign
from model.model_axes import STRETCH, build_away_from_zero, tiny_config
from pellucid.config.load import load_run_config
from pellucid.config.shipped import find_config
from pellucid.errors import ConfigError, InputOutputError
from pellucid.exchange.gguf import loading_arguments, write_gguf
from pellucid.tokenizer import Tokenizer
from pellucid.tokenizer.chat import JINJA
from pellucid.tokenizer.train import train_byte_pairs, vocabulary_of_ids
from tiny_run import VERSES

gguf = pytest.importorskip("gguf")
pytest.importorskip("accelerate")  # transformers asks for it when it reads a GGUF

END = "<|endoftext|>"
LLAMA = {"norm": "rms_norm", "activation": "swiglu", "position": {"type": "rope"}}
GPT2 = {"activation": "gelu_tanh", "position": {"type": "learned"}}
SHAPES = {
    "llama": {**LLAMA, "n_kv_heads": 1, "d_ff": 13, "norm_epsilon": 1e-3},
    "llama, untied, partly rotated": {
        **LLAMA,
        "position": {"type": "rope", "base": 3e4, "rotated_fraction": 0.5},
        "tied_embeddings": False,
    },
    "llama from layer_norm": {**LLAMA, "norm": "layer_norm", "activation": "relu_squared"},
    "llama with biases": {**LLAMA, "n_heads": 4, "n_kv_heads": 2, "bias": True},
    "llama with a bias in wide heads": {**LLAMA, "head_width": 12, "bias": ["queries_keys_values"]},
    "llama with a bias in its layers": {**LLAMA, "bias": ["feed_forward"], "tied_embeddings": False},
    "llama, stretched": {**LLAMA, "position": {"type": "rope", "base": 100.0, "stretch": STRETCH}},
    "qwen3": {**LLAMA, "qk_norm": True, "n_heads": 4, "n_kv_heads": 2},
    "qwen3 without positions": {**LLAMA, "position": {"type": "none"}, "qk_norm": True},
    "qwen3 of wide heads": {**LLAMA, "head_width": 160, "qk_norm": True},
    "qwen2": {**LLAMA, "n_heads": 4, "n_kv_heads": 2, "bias": ["queries_keys_values"]},
    "gpt2": {**GPT2, "bias": True},
    "gpt2, untied, sinusoidal": {**GPT2, "position": {"type": "sinusoidal"}, "tied_embeddings": False},
    "gpt2 without positions": {**GPT2, "position": {"type": "none"}, "d_ff": 64},
}
EXPERTS = {**LLAMA, "feed_forward": {"type": "moe", "n_experts": 5, "top_k": 3}, "n_kv_heads": 1}


@pytest.fixture(scope="module")
def transformers():
    return importlib.import_module("transformers")


@pytest.fixture(scope="module")
def tokenizer():
    return train_byte_pairs([VERSES], vocab_size=300, special_tokens=[END])


def written_and_read(transformers, tokenizer, folder, config, precision="fp32"):
    """Our model, and what transformers makes of its file."""
    model = build_away_from_zero(config, tokenizer.vocab_size).eval()
    architecture, written, _ = write_gguf(
        config, model.state_dict(), tokenizer, folder / "model.gguf", name="tiny", precision=precision
    )
    arguments = loading_arguments(architecture, written)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(
        folder, gguf_file="model.gguf", dtype=torch.float32, **arguments
    )
    return model, theirs.eval()


def largest_difference(ours, theirs):
    tokens_BT = torch.randint(ours.vocab_size, (3, ours.context_length), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        logits_BTV, expected_BTV = ours(tokens_BT), theirs(tokens_BT).logits
    assert expected_BTV.std() > 1
    return (logits_BTV - expected_BTV).abs().max()


def demo(**sizes):
    """The demo's config at an eighth of its width."""
    config = load_run_config(find_config(Path("fables")), []).model
    return type(config).model_validate({**config.model_dump(), "d_model": 16, "n_heads": 2, **sizes})


@pytest.mark.parametrize("name", SHAPES)
def test_the_logits_are_those_of_the_model(transformers, tokenizer, tmp_path, name):
    config = tiny_config(**{"d_model": 16, "context_length": 16, **SHAPES[name]})
    ours, theirs = written_and_read(transformers, tokenizer, tmp_path, config)
    assert theirs.config.model_type == name.split()[0].strip(",")
    assert largest_difference(ours, theirs) < 1e-5


@pytest.mark.parametrize(("precision", "at_most"), [("fp16", 0.05), ("bf16", 0.3)])
def test_half_the_bits_make_half_the_file(transformers, tokenizer, tmp_path, precision, at_most):
    """A model of the demo's shape, with its sharp gates."""
    ours, theirs = written_and_read(transformers, tokenizer, tmp_path, demo())
    size = (tmp_path / "model.gguf").stat().st_size
    assert largest_difference(ours, theirs) < 2e-5
    ours, theirs = written_and_read(transformers, tokenizer, tmp_path, demo(), precision)
    assert (tmp_path / "model.gguf").stat().st_size < 0.6 * size
    assert 1e-5 < largest_difference(ours, theirs) < at_most


@pytest.fixture
def run(workplace, pellucid):
    """A run of the demo's shape."""
    shape = ["d_model=16", "n_layers=2", "n_heads=2", "activation=relu_squared", "qk_norm=true", "context_length=160"]
    position = "model.position={type: rope, unrotated_last_layers: 1}"
    trained = pellucid("train", "tiny.yaml", *(f"model.{knob}" for knob in shape), position, "train.steps=80")
    assert trained.exit_code == 0, trained.stderr
    return Path("checkpoints/tiny")


def test_an_exported_run_writes_what_generate_writes(transformers, run, pellucid):
    exported = pellucid("export", run, "out", "--to", "gguf")
    assert exported.exit_code == 0, exported.stderr
    assert sorted(path.name for path in Path("out").iterdir()) == ["README.md", "model.gguf"]
    assert 'gguf_file="model.gguf"' in Path("out/README.md").read_text("utf-8")
    tokenizer = transformers.AutoTokenizer.from_pretrained("out", gguf_file="model.gguf")
    model = transformers.AutoModelForCausalLM.from_pretrained("out", gguf_file="model.gguf", dtype=torch.float32)
    for prompt in ("The ", "A red"):
        tokens_BT = tokenizer(prompt, return_tensors="pt")["input_ids"]
        written = model.generate(tokens_BT, do_sample=False, max_new_tokens=100, pad_token_id=tokenizer.eos_token_id)
        ours = pellucid("generate", run, "--prompt", prompt, "--greedy", "--max-new-tokens", "100", "--json")
        (sample,) = json.loads(ours.stdout)["samples"]
        assert tokenizer.decode(written[0, tokens_BT.size(1) :], skip_special_tokens=True) == sample["completion"]
        assert sample["tokens"] > 5


@pytest.fixture(scope="module")
def llama_cpp():
    pytest.importorskip("xllamacpp")
    return importlib.import_module("measurements.llama_cpp")


@pytest.mark.parametrize("name", [*SHAPES, "experts, which transformers does not read"])
def test_llama_cpp_gives_each_token_the_probability_of_the_model(llama_cpp, tokenizer, tmp_path, name):
    config = tiny_config(**{"d_model": 16, "context_length": 16, **SHAPES.get(name, EXPERTS)})
    model, file = build_away_from_zero(config, tokenizer.vocab_size).eval(), tmp_path / "model.gguf"
    write_gguf(config, model.state_dict(), tokenizer, file, name="tiny")
    server = llama_cpp.served(file, context=config.context_length, in_float32=True)
    at_most = 1e-2 if name.startswith("gpt2") else 5e-5  # its GELU is a table of float16
    assert differences_of_log_p(server, model).max() < at_most


def test_llama_cpp_reads_copies_in_fewer_bits(llama_cpp, tokenizer, tmp_path):
    config = tiny_config(**LLAMA, d_model=64, context_length=16)  # whose d_ff is no multiple of 32
    model, file = build_away_from_zero(config, tokenizer.vocab_size).eval(), tmp_path / "model.gguf"
    write_gguf(config, model.state_dict(), tokenizer, file, name="tiny")
    differences = [1e-4]
    for kind, part in (("q8_0", 0.4), ("q4_0", 0.3)):
        copy = tmp_path / f"{kind}.gguf"
        write_gguf(config, model.state_dict(), tokenizer, copy, name="tiny", precision=kind)
        assert copy.stat().st_size < part * file.stat().st_size
        server = llama_cpp.served(copy, context=config.context_length, in_float32=True)
        differences.append(differences_of_log_p(server, model).median())
    assert sorted(differences) == differences
    assert differences[-1] < 10


def differences_of_log_p(server, model):
    """The largest for each of some prompts; llama.cpp gives no log p where the likeliest token is half a character."""
    differences = []
    for prompt in torch.randint(256, (20, 12), generator=torch.Generator().manual_seed(0)):
        asked = {"prompt": prompt.tolist(), "n_predict": 1, "temperature": 0.0, "logprobs": model.vocab_size}
        [answer] = server.handle_completions(asked)["choices"]
        if answer["logprobs"]:
            given = {each["id"]: each["logprob"] for each in answer["logprobs"]["content"][0]["top_logprobs"]}
            with torch.no_grad():
                log_p_V = model(prompt[None])[0, -1].log_softmax(dim=-1)
            log_p_there_V = torch.tensor([given[id_] for id_ in range(model.vocab_size)])
            differences.append((log_p_there_V - log_p_V).abs().max())
    assert len(differences) > 3
    return torch.stack(differences)


def test_llama_cpp_writes_what_generate_writes(llama_cpp, run, pellucid):
    assert pellucid("export", run, "out", "--to", "gguf").exit_code == 0
    server = llama_cpp.served(Path("out/model.gguf"), context=160, in_float32=True)
    for prompt in ("The ", "A red"):
        ours = pellucid("generate", run, "--prompt", prompt, "--greedy", "--max-new-tokens", "100", "--json")
        (sample,) = json.loads(ours.stdout)["samples"]
        [answer] = server.handle_completions({"prompt": prompt, "n_predict": 100, "temperature": 0.0})["choices"]
        assert answer["text"] == sample["completion"]


def test_text_becomes_the_same_tokens(transformers, tokenizer, tmp_path):
    """Also text that spells a control token, once transformers is asked not to take it for one."""
    written_and_read(transformers, tokenizer, tmp_path, tiny_config(**LLAMA))
    read = transformers.AutoTokenizer.from_pretrained(tmp_path, gguf_file="model.gguf", split_special_tokens=True)
    for text in texts_of_all_kinds(1000):
        ids = tokenizer.encode(text)
        assert read(text, add_special_tokens=False)["input_ids"] == ids, ascii(text)
        assert read(text)["input_ids"] == [tokenizer.end_of_text, *ids]
        assert read.decode(ids) == text
    assert (read.bos_token, read.eos_token, len(read)) == (END, END, tokenizer.vocab_size)


def texts_of_all_kinds(n):
    rng = random.Random(0)
    parts = [END, " ", "\n", "\t", "'s", "e\u0301", "ice", *VERSES[:40]]
    planes = [(0x20, 0x7F), (0xA0, 0xD7FF), (0x10000, 0x10FFFF)]
    for _ in range(n):
        pieces = [
            rng.choice([rng.choice(parts), chr(rng.randrange(*rng.choice(planes)))]) for _ in range(rng.randrange(30))
        ]
        yield "".join(pieces)


@pytest.mark.parametrize("cuts", ["gpt-2", "llama-bpe", "qwen2"])
def test_text_becomes_the_same_tokens_in_llama_cpp(llama_cpp, tokenizer, tmp_path, cuts):
    """Qwen's normalizer is not in the file: its text is given as it normalises it, in NFC."""
    if cuts == "llama-bpe":
        library = foreign.llama()
        library.model.ignore_merges = True
        tokenizer = Tokenizer(library)
    elif cuts == "qwen2":
        tokenizer = Tokenizer(foreign.qwen())
    config = tiny_config(**LLAMA)
    tensors = build_away_from_zero(config, tokenizer.vocab_size).state_dict()
    write_gguf(config, tensors, tokenizer, tmp_path / "model.gguf", name="tiny")
    server = llama_cpp.served(tmp_path / "model.gguf", context=config.context_length)
    with httpx.Client(base_url=server.listening_address) as client:
        for text in texts_of_all_kinds(200):
            text = normalize("NFC", text) if cuts == "qwen2" else text
            asked = {"content": text, "add_special": False, "parse_special": False}
            assert client.post("/tokenize", json=asked).json()["tokens"] == tokenizer.encode(text), ascii(text)


def test_the_file_says_what_llama_cpp_reads(tokenizer, tmp_path):
    config = tiny_config(**LLAMA, qk_norm=True)
    tensors = build_away_from_zero(config, tokenizer.vocab_size).state_dict()
    write_gguf(config, tensors, tokenizer, tmp_path / "model.gguf", name="tiny")
    fields = gguf.GGUFReader(tmp_path / "model.gguf").fields
    said = {key: fields[key].contents() for key in fields if not key.startswith("GGUF.")}
    assert said["general.architecture"] == "qwen3"
    assert said["qwen3.attention.key_length"] == said["qwen3.rope.dimension_count"] == 128
    assert said["qwen3.context_length"] == config.context_length
    assert said["tokenizer.ggml.pre"] == "gpt-2"
    assert said["tokenizer.ggml.add_bos_token"] is True
    assert said["tokenizer.ggml.token_type"][-2:] == [1, 3]
    assert said["tokenizer.ggml.tokens"][-1] == END


def test_a_model_that_talks_says_how(tokenizer, tmp_path):
    chats = tokenizer.with_chat_tokens()
    config = tiny_config(**LLAMA, qk_norm=True)
    for name, asked, template in (("chats", chats, JINJA), ("writes", tokenizer, None)):
        tensors = build_away_from_zero(config, asked.vocab_size).state_dict()
        write_gguf(config, tensors, asked, tmp_path / f"{name}.gguf", name=name)
        field = gguf.GGUFReader(tmp_path / f"{name}.gguf").fields.get("tokenizer.chat_template")
        assert (field and field.contents()) == template


def test_numbers_beyond_float16_are_refused_there(tokenizer, tmp_path):
    config = tiny_config(**LLAMA)
    tensors = build_away_from_zero(config, tokenizer.vocab_size).state_dict()
    tensors["blocks.1.feed_forward.sublayer.W_2.weight"][0, 0] = 70_000
    with pytest.raises(ConfigError, match="^--precision fp16: blk.1.ffn_down.weight holds numbers beyond 65,504; "):
        write_gguf(config, tensors, tokenizer, tmp_path / "model.gguf", name="tiny", precision="fp16")


def test_ids_that_are_no_text_are_refused(tmp_path):
    config, ids = tiny_config(**LLAMA), vocabulary_of_ids([], n_ids=30, special_tokens=[END])
    tensors = build_away_from_zero(config, ids.vocab_size).state_dict()
    with pytest.raises(ConfigError, match="^tokenizer.type: GGUF needs merges, and this vocabulary has none; "):
        write_gguf(config, tensors, ids, tmp_path / "model.gguf", name="tiny")


def test_without_room_nothing_is_written(tokenizer, tmp_path, monkeypatch):
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(1000))
    config = tiny_config(**LLAMA)
    tensors = build_away_from_zero(config, tokenizer.vocab_size).state_dict()
    with pytest.raises(InputOutputError, match="model.gguf: it needs .* MB, 0.0 MB are free; make room"):
        write_gguf(config, tensors, tokenizer, tmp_path / "model.gguf", name="tiny")
    assert not list(tmp_path.iterdir())
