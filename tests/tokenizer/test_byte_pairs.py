"""The library learns and encodes as the reference does: the same merges, the same ids."""

import json

from hypothesis import example, given
from hypothesis import strategies as st

from pellucid.tokenizer.tokenizer import byte_of_symbol
from pellucid.tokenizer.train import train_byte_pairs
from reference import byte_pairs

END = "<|endoftext|>"
# No rare characters but emoji: Python and the library may know different versions of Unicode.
CHARACTERS = st.characters(max_codepoint=0x9FFF, exclude_categories=["Cs", "Cn"])
ANYTHING = st.text(CHARACTERS | st.sampled_from("🦊👩🏽‍🚀é²Ⅷ"))
# Little variety: pairs that overlap, and many that are equally frequent.
REPETITIVE = st.text(st.sampled_from("aab  's\n"), max_size=60)
TEXTS = st.lists(ANYTHING | REPETITIVE, max_size=4)


def merges_of(tokenizer):
    byte_of = byte_of_symbol()
    merges = json.loads(tokenizer.to_json())["model"]["merges"]
    return [tuple(bytes(map(byte_of.__getitem__, token)) for token in pair) for pair in merges]


@given(TEXTS, TEXTS, st.integers(0, 60))
@example(["aaaaaaa"], ["a" * n for n in range(12)], 9)
@example(["ab ba cd dc ab ba cd dc"], ["abcd"], 9)
@example(["🦊🦊🦊 👩🏽‍🚀👩🏽‍🚀"], ["🦊👩🏽‍🚀"], 40)
def test_merges_and_ids_are_those_of_the_reference(texts, others, n_merges):
    tokenizer = train_byte_pairs(texts, vocab_size=256 + n_merges + 1, special_tokens=[END])
    merges = byte_pairs.learn(texts, n_merges)
    assert merges_of(tokenizer) == merges
    for text in (*texts, *others):
        assert tokenizer.encode(text) == byte_pairs.encode(text, merges)


@given(st.lists(REPETITIVE, min_size=1, max_size=4))
def test_every_merge_makes_a_new_token(texts):
    """So the merge that made a token is found from its id (`pellucid tokenize`)."""
    tokens = [left + right for left, right in byte_pairs.learn(texts, 100)]
    assert len(set(tokens)) == len(tokens)


def test_the_reference_splits_words_as_gpt2_does():
    words = ["".join(map(bytes.decode, word)) for word in byte_pairs.split("I'll see 12 foxes,  isn't\n it?!")]
    assert words == ["I", "'ll", " see", " 12", " foxes", ",", " ", " isn", "'t", "\n", " it", "?!"]
