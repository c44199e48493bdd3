"""F36: pipes, sockets, devices and folders in place of files, and sizes that no machine holds, are refused at once."""

import json
import os
import shutil
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import safetensors.torch

import strikes
from damage import sign
from pellucid.errors import CheckpointError, DataError, PellucidError
from pellucid.exchange.imports import import_run
from pellucid.files import read_at_most, sha256
from pellucid.tokenizer import Tokenizer
from pellucid.tokenizer.train import train_byte_pairs
from pellucid.trained import load_trained_model
from processes import command_line
from tiny_run import VERSES, assert_one_error_line

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes with names are of POSIX")


def make_socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # the name of a socket may have about a hundred characters
    try:
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(path.name)
    finally:
        os.chdir(here)


SPECIAL: dict[str, Callable[[Path], None]] = {
    "a pipe": os.mkfifo,
    "a socket": make_socket,
    "a folder": Path.mkdir,
    "an endless device": lambda path: path.symlink_to("/dev/zero"),
}
IN_AN_IMPORT = ("config.json", "model.safetensors", "model.safetensors.index.json", "tokenizer.json")
GPT2 = {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_layer": 1, "n_head": 1, "n_embd": 2}


@pytest.mark.parametrize("kind", SPECIAL)
@pytest.mark.parametrize("name", IN_AN_IMPORT)
def test_f36_no_special_file_of_an_import_is_read(tmp_path: Path, name: str, kind: str):
    (tmp_path / "config.json").write_text(json.dumps({**GPT2, "vocab_size": 9, "n_positions": 4}))
    (tmp_path / name).unlink(missing_ok=True)
    SPECIAL[kind](tmp_path / name)
    with pytest.raises(PellucidError) as refused:
        import_run(str(tmp_path), tmp_path / "run")
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize("kind", SPECIAL)
def test_f36_no_special_file_is_a_tokenizer_or_part_of_a_data_set(tmp_path: Path, kind: str):
    SPECIAL[kind](tmp_path / "special")
    with pytest.raises(DataError, match="special"):
        Tokenizer.load(tmp_path / "special")
    if kind != "a folder":
        from pellucid.corpora.hugging_face import HuggingFaceCorpus  # most of a second of imports

        with pytest.raises(DataError, match="special"):
            list(HuggingFaceCorpus("json", data_files=str(tmp_path / "special")).pieces("train"))


@pytest.mark.parametrize("kind", SPECIAL)
def test_f36_a_special_file_is_neither_hashed_nor_read_to_its_end(tmp_path: Path, kind: str):
    SPECIAL[kind](tmp_path / "special")
    with pytest.raises(OSError, match="regular|directory"):
        sha256(tmp_path / "special")
    if kind == "a pipe":
        assert read_at_most(tmp_path / "special", 10) == b"", "of which nobody writes"
    else:
        with pytest.raises(OSError):  # noqa: PT011
            read_at_most(tmp_path / "special", 10)


@pytest.fixture
def run(tiny_place: Path) -> Path:
    return tiny_place / "base"


def test_f36_a_prompt_from_an_endless_file_is_refused_in_little_memory(run: Path):
    done = command_line(run.parent, "generate", "base", "--prompt-file", "/dev/zero", fault=LITTLE_MEMORY)
    assert_one_error_line(done, 5, "/dev/zero: more than")


LITTLE_MEMORY = partial(strikes.little_memory, 500 * 2**20)


@pytest.mark.parametrize(
    "forged",
    [("n_layers: 2", "n_layers: 100000000"), ("d_model: 16", "d_model: 1048576"), ("d_ff: null", "d_ff: 4294967296")],
    ids=lambda forged: forged[1],
)
def test_f36_a_model_larger_than_its_weights_is_refused_before_it_is_built(run: Path, tmp_path: Path, forged):
    directory = tmp_path / "step-00000020"
    shutil.copytree(run / directory.name, directory)
    text = (directory / "config.yaml").read_text()
    assert forged[0] in text
    (directory / "config.yaml").write_text(text.replace(*forged))
    sign(directory)
    with pytest.raises(CheckpointError, match="larger than the weights that are here"):
        load_trained_model(directory)


def test_f18_weights_that_are_not_finite_are_not_used(run: Path, tmp_path: Path, pellucid):
    """Under a manifest that fits them, as an attacker would write it."""
    directory = tmp_path / "step-00000020"
    shutil.copytree(run / directory.name, directory)
    tensors = safetensors.torch.load_file(directory / "model.safetensors")
    tensors["embeddings.embedding_VD"][0, 0] = float("nan")
    safetensors.torch.save_file(tensors, directory / "model.safetensors")
    sign(directory)
    done = pellucid("generate", directory)
    assert_one_error_line(done, 4, "embeddings.embedding_VD holds NaN or infinity")
    assert done.stdout == ""


@pytest.mark.parametrize("how", [(), ("--greedy",), ("--num-samples", "2"), ("--beams", "2")], ids=" ".join)
def test_f18_finite_weights_whose_logits_overflow_write_no_token(run: Path, tmp_path: Path, pellucid, how):
    directory = tmp_path / "step-00000020"
    shutil.copytree(run / directory.name, directory)
    tensors = safetensors.torch.load_file(directory / "model.safetensors")
    tensors["embeddings.embedding_VD"] *= 1e10
    tensors["final_norm.weight"] *= 1e30
    safetensors.torch.save_file(tensors, directory / "model.safetensors")
    sign(directory)
    done = pellucid("generate", directory, "--prompt", "The fox", *how)
    assert_one_error_line(done, 6, "the model: its logits are NaN or infinite; check its weights with `pellucid verify")
    assert done.stdout.removeprefix("The fox") == ""  # a prompt may be shown while the first token is computed


@pytest.mark.parametrize("id_", [2**31, 2**32 - 1])
def test_f36_a_token_with_a_huge_id_is_refused_before_there_is_room_for_it(id_: int):
    description = json.loads(train_byte_pairs([VERSES], vocab_size=270, special_tokens=["<|end|>"]).to_json())
    last = max(description["model"]["vocab"], key=description["model"]["vocab"].get)
    description["model"]["vocab"][last] = id_
    with pytest.raises(DataError, match="its ids have gaps"):
        Tokenizer.from_json(json.dumps(description))
