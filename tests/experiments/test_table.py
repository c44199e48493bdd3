"""Columns of results: skills that begin with the same word are also told together."""

import pytest

from pellucid.experiments.table import in_words, with_families


def test_skills_that_begin_with_the_same_word_are_told_together():
    def figures(share, excess, accuracy):
        return {"share_of_tokens": share, "excess_nats_per_document": excess, "accuracy": accuracy}

    skills = {
        "pairs": figures(0.5, 1.0, None),
        "recall to 8": figures(0.1, 0.5, 1.0),
        "recall to 16": figures(0.3, 0.25, 0.6),
        "recall beyond": figures(0.0, 0.0, None),
    }
    found = with_families(skills)
    assert list(found) == [*skills, "recall"]
    assert found["recall"] == {
        "excess_nats_per_document": 0.75,
        "accuracy": pytest.approx((0.1 * 1.0 + 0.3 * 0.6) / 0.4),
    }


@pytest.mark.parametrize(
    ("label", "words"),
    [
        ("n_layers=1", "1 layer"),
        ("n_layers=2, n_heads=1", "2 layers, 1 head"),
        ("position=none", "no positions"),
        ("position=rope", "RoPE positions"),
        ("beta=0.05", "β = 0.05"),
        ("d_model=16, steps=400", "width 16, 400 updates"),
        ("weight_decay=0.1", "weight decay 0.1"),
        ("decoder, plain, four times", "decoder, plain, four times"),
    ],
)
def test_a_label_of_keys_is_words_in_a_figure(label, words):
    assert in_words(label) == words
