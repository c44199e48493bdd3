"""A head is named after where its attention goes, and after nothing if it goes nowhere in particular."""

import pytest
import torch

from model.model_axes import tiny_config
from pellucid.errors import ConfigError
from pellucid.inspection.head_scores import SCORES, HeadScores, head_scores, scores_of, scores_table
from pellucid.model.build import build_model
from pellucid.tokenizer.train import train_characters

N = 5
T = 2 * N + 1


def pattern(look_at):
    """The weights of a head that puts all attention of query t on one position."""
    weights_TS = torch.zeros(T, T)
    for t in range(T):
        weights_TS[t, look_at(t)] = 1
    return weights_TS


PATTERNS = {
    "previous token": pattern(lambda t: max(t - 1, 0)),
    "induction": pattern(lambda t: t - N + 1 if t > N else 0),
    "same token": pattern(lambda t: t - N if t > N else t),
    "first token": pattern(lambda t: 0),
}


def test_each_pattern_has_one_score_and_gives_the_head_its_name():
    scores_14 = scores_of(torch.stack([PATTERNS[name] for name in SCORES])[None], N)
    torch.testing.assert_close(scores_14[0], torch.eye(4))
    for head, (name, row) in enumerate(zip(SCORES, scores_14[0].tolist(), strict=True)):
        assert HeadScores(0, head, dict(zip(SCORES, row, strict=True))).name == name


def test_a_head_that_looks_everywhere_or_at_itself_is_unclassified():
    everywhere = torch.ones(T, T).tril() / torch.arange(1, T + 1)[:, None]
    for weights_TS in (everywhere, torch.eye(T)):
        [row] = scores_of(weights_TS[None, None], N)[0].tolist()
        assert HeadScores(0, 0, dict(zip(SCORES, row, strict=True))).name == "unclassified"


def test_the_larger_of_two_scores_gives_the_name_if_it_is_large_enough():
    def named(*scores):
        return HeadScores(0, 0, dict(zip(SCORES, scores, strict=True))).name

    assert named(0.42, 0.45, 0.0, 0.1) == "induction"
    assert named(0.39, 0.1, 0.1, 0.39) == "unclassified"


@pytest.fixture(scope="module")
def letters():
    return train_characters(["abcdefghijklmnopqrstuvwxyz"], special_tokens=["<|endoftext|>"])


def copier(context_length=65, **choices):
    """Two heads: the first layer's look everywhere, the second's for the same token; it copies what it finds."""
    sizes = {"context_length": context_length, "d_model": 128, "n_layers": 2, "n_heads": 1, "embedding_std": 0.4}
    config = tiny_config(**sizes, position={"type": "none"}, zero_init_projections=True, copying_init=True, **choices)
    model = build_model(config, 27)
    with torch.no_grad():
        first, second = (block.attention.sublayer for block in model.blocks)
        first.W_Q.weight.zero_()
        second.W_Q.weight.copy_(torch.eye(128))
        second.W_K.weight.copy_(torch.eye(128))
    return model


def test_a_model_made_to_look_for_the_same_token_is_found_out(letters):
    first, second = head_scores(copier(), letters)
    assert (first.layer, first.name) == (0, "unclassified")
    assert (second.layer, second.name) == (1, "same token")
    assert second.scores["same token"] == pytest.approx(0.5, abs=0.02)  # the other half is on the token itself
    table = scores_table([first, second]).splitlines()
    assert [line.split()[0] for line in table[2:]] == ["0.0", "1.0"]
    assert table[-1].endswith("same token")


def test_in_a_sliding_window_tokens_are_repeated_while_they_are_in_sight(letters):
    _, second = head_scores(copier(attention={"type": "sliding_window", "window": 12}), letters)
    assert second.name == "same token"


def test_scores_are_drawn_from_a_seed(letters):
    torch.manual_seed(0)
    model = build_model(tiny_config(context_length=33), letters.vocab_size)
    assert head_scores(model, letters, seed=3) == head_scores(model, letters, seed=3)
    assert head_scores(model, letters, seed=3) != head_scores(model, letters, seed=4)


def test_a_context_that_is_too_short_is_one_clear_line(letters):
    with pytest.raises(ConfigError, match=r"heads: 6 tokens of context are too few .*; take a model .* of 7 or more"):
        head_scores(copier(context_length=6), letters)
    assert len(head_scores(copier(context_length=7), letters)) == 2


def test_three_tokens_are_enough_to_be_read_twice(letters):
    _, second = head_scores(copier(), letters, tokens=letters.encode("abc"))
    assert second.name == "same token"
    with pytest.raises(ConfigError, match="heads: 2 different tokens are too few"):
        head_scores(copier(), letters, tokens=letters.encode("abab"))


def test_weights_that_are_no_shares_give_no_scores(letters):
    config = tiny_config(context_length=33, attention="linear", position={"type": "rope"})
    with pytest.raises(ConfigError, match="heads: attention weights do not sum to 1 here, as can happen in linear"):
        head_scores(build_model(config, letters.vocab_size), letters)
