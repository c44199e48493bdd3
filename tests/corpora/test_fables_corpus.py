import hashlib
import json
import math

import pytest

from pellucid.corpora.corpus import KnownCorpus
from pellucid.corpora.fables import FablesCorpus
from pellucid.errors import ConfigError

SMALL = {"size": 200, "world_size": 24, "seed": 0, "validation_fraction": 0.1}
PINNED = "5a49f2c85d4e7f56bcd5eda24c1b7ac9bebeb8e12a5949d7e018758ef7fa6e05"


def test_splits_have_their_sizes_and_share_no_fable():
    corpus = FablesCorpus(**SMALL)
    train, validation = list(corpus.documents("train")), list(corpus.documents("validation"))
    assert (len(train), len(validation)) == (180, 20)
    assert len(set(validation)) == 20
    assert not set(train) & set(validation)


def test_training_passes_over_validation_fables(monkeypatch):
    corpus = FablesCorpus(size=6, world_size=24, seed=0, validation_fraction=0.34)
    streams = {"validation": ["a", "a", "b"], "train": ["c", "a", "c", "d", "b", "e", "f"]}
    monkeypatch.setattr(corpus, "_stream", lambda split: iter(streams[split]))
    assert list(corpus.documents("validation")) == ["a", "b"]
    assert list(corpus.documents("train")) == ["c", "c", "d", "e"]


def test_documents_can_be_read_again_and_by_another_corpus():
    corpus, twin = FablesCorpus(**SMALL), FablesCorpus(**SMALL)
    for split in ("train", "validation"):
        assert list(corpus.documents(split)) == list(corpus.documents(split)) == list(twin.documents(split))


def test_pieces_are_the_documents():
    corpus = FablesCorpus(**SMALL)
    pieces = list(corpus.pieces("validation"))
    assert [piece.text for piece in pieces] == list(corpus.documents("validation"))
    assert all(piece.ends_document for piece in pieces)


@pytest.mark.parametrize("change", [{"seed": 1}, {"world_size": 25}])
def test_another_seed_or_world_writes_another_corpus(change):
    corpus, other = FablesCorpus(**SMALL), FablesCorpus(**{**SMALL, **change})
    assert corpus.identity != other.identity
    assert list(corpus.documents("train")) != list(other.documents("train"))


def test_a_larger_corpus_begins_with_the_smaller_one():
    larger = FablesCorpus(**{**SMALL, "size": 400, "validation_fraction": 0.05})
    assert list(larger.documents("train"))[:180] == list(FablesCorpus(**SMALL).documents("train"))


def test_the_identity_can_be_written_as_json_and_holds_the_grammar_version():
    identity = FablesCorpus(**SMALL).identity
    assert json.loads(json.dumps(identity)) == identity
    assert identity["grammar_version"] >= 1


def test_every_document_has_a_known_probability():
    corpus = FablesCorpus(**SMALL)
    assert isinstance(corpus, KnownCorpus)
    assert all(math.isfinite(corpus.log_probability(text)) for text in corpus.documents("validation"))
    assert corpus.log_probability("Once upon a time.") == -math.inf


def test_the_corpus_is_the_one_of_this_grammar_version():
    corpus = FablesCorpus(**SMALL)
    text = "".join(text + "\0" for split in ("train", "validation") for text in corpus.documents(split))
    digest = hashlib.sha256(text.encode()).hexdigest()
    assert digest == PINNED, f"the fables have changed to {digest}: raise GRAMMAR_VERSION, then pin this digest"


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"size": 1}, "corpus.size: 1 fables"),
        ({"size": 0}, "corpus.size: 0 fables"),
        ({"size": 2, "validation_fraction": 0.9}, "leave none to train on"),
        ({"validation_fraction": 0.0}, "corpus.validation_fraction: 0.0"),
        ({"validation_fraction": 1.0}, "corpus.validation_fraction: 1.0"),
        ({"validation_fraction": float("nan")}, "corpus.validation_fraction: nan"),
        ({"world_size": 1}, "corpus.world_size: 1 animals"),
    ],
)
def test_bad_values_are_refused(change, complaint):
    with pytest.raises(ConfigError, match=complaint):
        FablesCorpus(**{**SMALL, **change})
