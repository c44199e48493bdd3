"""The bigram model, as a language model like any other."""

import torch

from pellucid.config.model import BigramConfig
from pellucid.cost.counts import count_cost
from pellucid.model.build import build_model


def bigram(vocab_size=5):
    model = build_model(BigramConfig(type="bigram", context_length=8), vocab_size)
    torch.nn.init.normal_(model.logits_VV, generator=torch.Generator().manual_seed(0))
    return model


def test_untrained_every_token_is_as_likely():
    model = build_model(BigramConfig(type="bigram", context_length=8), 5)
    assert torch.equal(model(torch.tensor([[3, 1]])).softmax(-1), torch.full((1, 2, 5), 0.2))


def test_a_row_of_the_table_depends_on_the_last_token_alone():
    model = bigram()
    logits_BTV = model(torch.tensor([[0, 3, 1], [2, 3, 4]]))
    assert torch.equal(logits_BTV[0, 1], logits_BTV[1, 1])
    assert torch.equal(logits_BTV[0, 1], model.logits_VV[3])


def test_token_by_token_gives_the_logits_of_all_at_once():
    model, tokens_BT = bigram(), torch.tensor([[0, 3, 1, 2]])
    state = model.new_state(1)
    pieces = [model(token_B1, state) for token_B1 in tokens_BT.split(1, dim=1)]
    assert torch.equal(torch.cat(pieces, dim=1), model(tokens_BT))
    assert state.length == 4


def test_counts_become_the_shares_of_each_row_with_one_more_pair_spread_over_all():
    model = bigram(vocab_size=2)
    model.set_counts(torch.tensor([[3, 0], [0, 0]]))
    expected_VV = torch.tensor([[3.5 / 4, 0.5 / 4], [0.5, 0.5]])
    torch.testing.assert_close(model(torch.tensor([[0, 1]])).softmax(-1)[0], expected_VV)
    torch.testing.assert_close(model.logits_VV.exp().sum(dim=1), torch.ones(2))


def test_it_has_a_row_for_each_token_and_computes_no_product():
    cost = count_cost(bigram(vocab_size=7))
    assert cost.parameters.embedding == cost.parameters.total == 7 * 7
    assert cost.training_flops_per_token.total == 0
