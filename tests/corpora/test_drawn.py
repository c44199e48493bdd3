"""Corpora that are drawn from a language: how they are split, and that each stays the one that it was."""

import hashlib
import json
import math

import pytest
from pydantic import TypeAdapter

from pellucid.config.data import CorpusConfig
from pellucid.corpora.build import build_corpus
from pellucid.corpora.drawn import Drawn
from pellucid.errors import ConfigError
from pellucid.languages.fables import Fables

SMALL = {"size": 200, "seed": 0, "validation_fraction": 0.1}
PINNED = "5a49f2c85d4e7f56bcd5eda24c1b7ac9bebeb8e12a5949d7e018758ef7fa6e05"
# The beginning of the first document of each, which no machine and no version of Python may write differently.
FIRST = {
    "fables": "There was once a small but busy tortoise called Casper, who ",
    "chains": " b c a b a c b a a b c a b c a b c a b a b a b c a b a b c b",
    "lookup": " u 9 j 4 g 7 z 0 v 8 p 7 e 8 s 5 : s 5 e 8 v 8 z 0 e 8 v 8 s",
    "hops": " a > e d > f c > a h > h f > c b > d g > b e > g : g 2 d : d",
    "brackets": " ( ( ( ) [ ( [ ( ) ( ) ] [ ] ) [ [ ( ( ) ) ( ( ) ) [ ] ( ) [",
    "sums": " 7 2 + 2 6 = 0 9 8",
    "hidden": " b a b b a b b b b b b b a b c b b b b b b b c b c b b b b b",
    "trees": " d b b c b d d d b d d d d d d b d b b b b c b b",
}


def corpus_of(type_: str, **options: object) -> Drawn:
    section = {"type": type_, "size": 100, "validation_fraction": 0.1, **options}
    return build_corpus(TypeAdapter(CorpusConfig).validate_python(section))


def fables(world_size=24, **changes):
    return Drawn(Fables(world_size), **{**SMALL, **changes})


@pytest.mark.parametrize("type_", FIRST)
def test_a_held_out_document_is_never_trained_on_and_all_of_them_are_possible(type_):
    corpus = corpus_of(type_)
    train, held_out = list(corpus.documents("train")), list(corpus.documents("validation"))
    assert not set(train) & set(held_out)
    assert len(set(held_out)) == len(held_out)
    assert all(corpus.language.log_probability(text) > -1e4 for text in train[:5] + held_out[:5])
    assert corpus.language.log_probability("Once upon a time.") == -math.inf
    assert [(piece.text, piece.ends_document) for piece in corpus.pieces("train")] == [(text, True) for text in train]


@pytest.mark.parametrize(("type_", "first"), FIRST.items(), ids=FIRST)
def test_equal_identities_give_equal_texts_on_every_machine_and_a_seed_changes_them(type_, first):
    corpus, again, other = corpus_of(type_), corpus_of(type_), corpus_of(type_, seed=1)
    assert json.loads(json.dumps(corpus.identity)) == again.identity != other.identity
    documents = [list(each.documents("train")) for each in (corpus, again, other)]
    assert documents[0] == documents[1] != documents[2]
    assert documents[0][0][:60] == first


def test_splits_have_their_sizes():
    assert [len(list(fables().documents(split))) for split in ("train", "validation")] == [180, 20]


def test_training_passes_over_validation_fables(monkeypatch):
    corpus = fables(size=6, validation_fraction=0.34)
    streams = {"validation": ["a", "a", "b"], "train": ["c", "a", "c", "d", "b", "e", "f"]}
    monkeypatch.setattr(corpus, "_stream", lambda split: iter(streams[split]))
    assert list(corpus.documents("validation")) == ["a", "b"]
    assert list(corpus.documents("train")) == ["c", "c", "d", "e"]


def test_another_world_is_another_corpus_and_a_larger_corpus_begins_with_the_smaller_one():
    assert fables().identity != fables(world_size=25).identity
    larger, train = fables(size=400, validation_fraction=0.05), list(fables().documents("train"))
    assert list(larger.documents("train"))[:180] == train != list(fables(world_size=25).documents("train"))


def test_the_fables_are_those_of_this_grammar_version():
    text = "".join(text + "\0" for split in ("train", "validation") for text in fables().documents(split))
    digest = hashlib.sha256(text.encode()).hexdigest()
    assert digest == PINNED, f"the fables have changed to {digest}: raise GRAMMAR_VERSION, then pin this digest"


def test_all_pairs_of_numbers_are_either_trained_on_or_asked_for():
    corpus = corpus_of("sums", digits=1, size=5_000, validation_fraction=0.3)
    train, held_out = set(corpus.documents("train")), set(corpus.documents("validation"))
    assert len(held_out) == 30
    assert len(train | held_out) == 100


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"size": 1}, "corpus.size: 1 fables"),
        ({"size": 0}, "corpus.size: 0 fables"),
        ({"size": 2, "validation_fraction": 0.9}, "leave none to train on"),
        ({"validation_fraction": 0.0}, "corpus.validation_fraction: 0.0"),
        ({"validation_fraction": 1.0}, "corpus.validation_fraction: 1.0"),
        ({"validation_fraction": float("nan")}, "corpus.validation_fraction: nan"),
    ],
)
def test_bad_values_are_refused(change, complaint):
    with pytest.raises(ConfigError, match=complaint):
        fables(**change)
