import json

import pytest

from pellucid.config.data import FablesConfig, HuggingFaceConfig, InstructionsConfig, TextFilesConfig
from pellucid.corpora.build import build_corpus


def configs(folder):
    (folder / "a.txt").write_text("one\ntwo\nthree\nfour\n", encoding="utf-8")
    path = str(folder / "a.txt")
    return [
        FablesConfig(type="fables", size=10, validation_fraction=0.2),
        InstructionsConfig(type="instructions", size=10, validation_fraction=0.2),
        TextFilesConfig(type="text", files=(path,), separator="\n", validation_fraction=0.25),
        HuggingFaceConfig(type="hugging_face", path="text", data_files=(path,), validation_fraction=0.25),
    ]


@pytest.mark.parametrize("i", range(4))
def test_every_corpus_can_be_described_and_read_again(tmp_path, i, monkeypatch):
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    config = configs(tmp_path)[i]
    first, second = build_corpus(config), build_corpus(config)
    assert json.dumps(first.identity) == json.dumps(second.identity)
    for split in ("train", "validation"):
        pieces = list(first.pieces(split))
        assert pieces
        assert pieces[-1].ends_document
        assert pieces == list(first.pieces(split)) == list(second.pieces(split))
