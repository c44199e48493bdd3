"""p(token | both sides): against all documents that a small language can write."""

import math
from collections import defaultdict

import pytest

from pellucid.data.both_sides import distributions_from_both_sides, nats_of
from pellucid.tokenizer.train import train_byte_pairs
from small_languages import SMALL, all_documents


@pytest.mark.parametrize("name", SMALL)
def test_a_token_is_as_likely_as_the_documents_that_differ_in_it_alone(name):
    language = SMALL[name]
    documents = all_documents(language)
    tokenizer = train_byte_pairs([*documents][:200], vocab_size=300, special_tokens=["<|end|>"])
    of_others, floor, expected_floor = defaultdict(dict), 0.0, 0.0
    for text, p in documents.items():
        ids = tuple(tokenizer.encode(text))
        for place, id_ in enumerate(ids):
            of_others[ids[:place], ids[place + 1 :]][id_] = p
    for text in sorted(documents)[:: max(1, len(documents) // 20)]:
        ids = tuple(tokenizer.encode(text))
        for place, p in enumerate(distributions_from_both_sides(language, tokenizer, text)):
            masses = of_others[ids[:place], ids[place + 1 :]]
            assert p == pytest.approx({id_: mass / sum(masses.values()) for id_, mass in masses.items()})
            floor -= math.log(p[ids[place]])
        expected_floor += sum(nats_of(language, tokenizer, text))
    assert floor == pytest.approx(expected_floor)
