"""Corpora of the languages of symbols: what a config describes, and how it is split."""

import pytest
from pydantic import TypeAdapter

from pellucid.config.data import CorpusConfig
from pellucid.corpora.build import build_corpus
from pellucid.corpora.corpus import KnownCorpus

TYPES = ("chains", "lookup", "hops", "brackets", "sums", "hidden", "trees")


def corpus_of(type_: str, **options: object) -> KnownCorpus:
    section = {"type": type_, "size": 100, "validation_fraction": 0.1, **options}
    return build_corpus(TypeAdapter(CorpusConfig).validate_python(section))


@pytest.mark.parametrize("type_", TYPES)
def test_a_held_out_document_is_never_trained_on_and_all_of_them_are_possible(type_):
    corpus = corpus_of(type_)
    assert isinstance(corpus, KnownCorpus)
    train, held_out = list(corpus.documents("train")), list(corpus.documents("validation"))
    assert not set(train) & set(held_out)
    assert len(set(held_out)) == len(held_out)
    assert all(corpus.log_probability(text) > -1e4 for text in train[:5] + held_out[:5])
    assert list(corpus.documents("train")) == train


@pytest.mark.parametrize("type_", TYPES)
def test_equal_identities_give_equal_texts_and_a_seed_changes_them(type_):
    corpus, again, other = corpus_of(type_), corpus_of(type_), corpus_of(type_, seed=1)
    assert corpus.identity == again.identity != other.identity
    documents = [list(each.documents("train")) for each in (corpus, again, other)]
    assert documents[0] == documents[1] != documents[2]


# The beginning of the first document of each, which no machine and no version of Python may write differently.
FIRST = {
    "chains": " b c a b a c b a a b c a b c a b c a b a b a b c a b a b c b",
    "lookup": " u 9 j 4 g 7 z 0 v 8 p 7 e 8 s 5 : s 5 e 8 v 8 z 0 e 8 v 8 s",
    "hops": " a > e d > f c > a h > h f > c b > d g > b e > g : g 2 d : d",
    "brackets": " ( ( ( ) [ ( [ ( ) ( ) ] [ ] ) [ [ ( ( ) ) ( ( ) ) [ ] ( ) [",
    "sums": " 7 2 + 2 6 = 0 9 8",
    "hidden": " b a b b a b b b b b b b a b c b b b b b b b c b c b b b b b",
    "trees": " d b b c b d d d b d d d d d d b d b b b b c b b",
}


@pytest.mark.parametrize(("type_", "first"), FIRST.items(), ids=FIRST)
def test_the_first_document_is_the_same_on_every_machine(type_, first):
    assert next(iter(corpus_of(type_).documents("train")))[:60] == first


def test_all_pairs_of_numbers_are_either_trained_on_or_asked_for():
    corpus = corpus_of("sums", digits=1, size=5_000, validation_fraction=0.3)
    train, held_out = set(corpus.documents("train")), set(corpus.documents("validation"))
    assert len(held_out) == 30
    assert len(train | held_out) == 100
