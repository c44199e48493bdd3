"""The library learns and encodes as `pellucid.plain` does: the same merges, the same ids, the same text again."""

from hypothesis import example, given
from hypothesis import strategies as st

from pellucid import plain
from pellucid.tokenizer.train import train_byte_pairs

END = "<|endoftext|>"
# No rare characters but emoji: Python and the library may know different versions of Unicode.
CHARACTERS = st.characters(max_codepoint=0x9FFF, exclude_categories=["Cs", "Cn"])
ANYTHING = st.text(CHARACTERS | st.sampled_from("🦊👩🏽‍🚀é²Ⅷ"))
# Little variety: pairs that overlap, and many that are equally frequent.
REPETITIVE = st.text(st.sampled_from("aab  's\n"), max_size=60)
TEXT = ANYTHING | REPETITIVE


@given(TEXT, st.lists(TEXT, max_size=4), st.integers(0, 60))
@example("aaaaaaa", ["a" * n for n in range(12)], 9)
@example("ab ba cd dc ab ba cd dc", ["abcd"], 9)
@example("🦊🦊🦊 👩🏽‍🚀👩🏽‍🚀", ["🦊👩🏽‍🚀"], 40)
def test_merges_and_ids_are_those_of_plain(text, others, n_merges):
    tokenizer = train_byte_pairs([text], vocab_size=256 + n_merges + 1, special_tokens=[END])
    merges = plain.learn_merges(text, n_merges)
    assert merges == {pair: id_ for id_, pair in tokenizer.merges.items()}
    for any_text in (text, *others):
        ids = plain.encode(any_text, merges)
        assert tokenizer.encode(any_text) == ids
        assert plain.decode(ids, merges) == any_text


@given(REPETITIVE)
def test_every_merge_makes_a_new_token(text):
    """So the merge that made a token is found from its id (`pellucid tokenize`)."""
    merges = plain.learn_merges(text, 100)
    spellings = [plain.decode([id_], merges) for id_ in merges.values()]
    assert len(set(spellings)) == len(spellings)


def test_words_are_split_as_gpt2_does():
    words = ["I", "'ll", " see", " 12", " foxes", ",", " ", " isn", "'t", "\n", " it", "?!"]
    assert plain.split_into_words("I'll see 12 foxes,  isn't\n it?!") == words
