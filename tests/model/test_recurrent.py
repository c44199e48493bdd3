"""Recurrent networks are the loops, and start with weights that suit them."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from model.model_axes import VOCAB_SIZE, build_away_from_zero, float64
from pellucid.config.model import RecurrentConfig
from pellucid.model.build import build_model
from pellucid.runtime.precision import onednn_has_bfloat16
from reference.recurrent import recurrent as reference_recurrent
from rounding import assert_equal_to_rounding

TYPES = ["rnn", "lstm", "gru"]


def tiny_recurrent(type_, **changes):
    return RecurrentConfig.model_validate({"type": type_, "context_length": 8, "d_model": 4, "n_layers": 2, **changes})


@given(
    type_=st.sampled_from(TYPES),
    n_layers=st.integers(1, 3),
    tied_embeddings=st.booleans(),
    tokens=st.lists(st.integers(0, VOCAB_SIZE - 1), min_size=1, max_size=5),
)
@settings(max_examples=20)
def test_a_recurrent_network_is_the_loop_over_its_tokens(type_, n_layers, tied_embeddings, tokens):
    """Equations 35 to 37, in float64."""
    config = tiny_recurrent(type_, n_layers=n_layers, tied_embeddings=tied_embeddings)
    with float64():
        model = build_away_from_zero(config)
    weights = {name: parameter.detach().numpy() for name, parameter in model.named_parameters()}
    logits_TV = model(torch.tensor([tokens]))[0].detach().numpy()
    np.testing.assert_allclose(logits_TV, reference_recurrent(tokens, config, weights), rtol=0, atol=1e-10)


@pytest.mark.parametrize("type_", TYPES)
def test_at_first_the_way_from_token_to_token_keeps_lengths_and_an_lstm_its_cells(type_):
    model = build_model(tiny_recurrent(type_, d_model=16), VOCAB_SIZE)
    for name, stacked in model.layers.named_parameters():
        gates = stacked.detach().split(16)
        if name.startswith("weight_hh"):
            for gate in gates:
                torch.testing.assert_close(gate @ gate.T, torch.eye(16))
        if name.startswith("bias"):
            is_forget_gate = [type_ == "lstm" and name.startswith("bias_ih") and i == 1 for i in range(len(gates))]
            assert [gate.unique().tolist() for gate in gates] == [[float(one)] for one in is_forget_gate]


@pytest.mark.parametrize(("lets_in", "stays"), [(-1e3, True), (1e3, False)], ids=["i = 0", "i = 1"])
def test_an_lstm_keeps_its_cells_where_it_forgets_nothing_and_lets_nothing_in(lets_in, stays):
    """Equation 36: c = f c + i c~, so f = 1 alone is not enough. The gradient along the cells takes f alone."""
    with float64():
        model = build_away_from_zero(tiny_recurrent("lstm", n_layers=1))
    input_gate, forget_gate = slice(0, 4), slice(4, 8)
    with torch.no_grad():
        model.layers.bias_ih_l0[input_gate], model.layers.bias_ih_l0[forget_gate] = lets_in, 1e3
        model.layers.weight_hh_l0.zero_()  # the gates see the token alone: no other way back leads to c
    cells = torch.randn(1, 1, 4, dtype=torch.float64, requires_grad=True)
    _, (_, after) = model.layers(torch.randn(1, 5, 4, dtype=torch.float64), (torch.zeros_like(cells), cells))
    assert torch.equal(after, cells) is stays
    [gradient] = torch.autograd.grad(after.sum(), cells)
    assert torch.equal(gradient, torch.ones_like(cells))


@pytest.mark.parametrize("type_", TYPES)
def test_the_hidden_state_is_all_there_is_and_no_longer_for_a_longer_text(type_):
    model = build_model(tiny_recurrent(type_), VOCAB_SIZE)
    state = model.new_state(batch_size=3)
    for length in (1, 40):
        model(torch.zeros(3, length, dtype=torch.long), state)
        hidden = state.hidden if type_ == "lstm" else (state.hidden,)
        assert [tuple(each.shape) for each in hidden] == [(2, 3, 4)] * (1 + (type_ == "lstm"))
    assert state.length == 41


@pytest.mark.parametrize("type_", TYPES)
def test_dropout_is_on_in_training_and_off_in_evaluation(type_):
    tokens_BT = torch.randint(VOCAB_SIZE, (2, 8))
    model = build_away_from_zero(tiny_recurrent(type_, dropout=0.5))
    without = build_away_from_zero(tiny_recurrent(type_, dropout=0.0))
    assert torch.equal(model.eval()(tokens_BT), without(tokens_BT))
    model.train()
    assert not torch.equal(model(tokens_BT), model(tokens_BT))


@pytest.mark.parametrize("type_", TYPES)
def test_in_bfloat16_the_state_leads_to_the_same_logits(type_):
    model, tokens_BT = build_away_from_zero(tiny_recurrent(type_)), torch.randint(VOCAB_SIZE, (2, 8))
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        state = model.new_state(2)
        pieces = [model(token_B1, state) for token_B1 in tokens_BT.split(1, dim=1)]
        assert_equal_to_rounding(torch.cat(pieces, dim=1), model(tokens_BT), dtype=torch.bfloat16)


def test_an_lstm_is_float32_where_the_cpu_has_none_in_bfloat16(monkeypatch):
    """And is so through training too, in which PyTorch raised `could not create a primitive descriptor`."""
    model, tokens_BT = build_away_from_zero(tiny_recurrent("lstm")), torch.randint(VOCAB_SIZE, (2, 8))
    formats = []
    model.layers.register_forward_hook(lambda _, inputs, outputs: formats.append(outputs[0].dtype))
    for has_it in (onednn_has_bfloat16(), False):
        monkeypatch.setattr("pellucid.model.recurrent.onednn_has_bfloat16", lambda has_it=has_it: has_it)
        with torch.autocast("cpu", torch.bfloat16):
            model(tokens_BT).float().sum().backward()
        assert formats.pop() == (torch.bfloat16 if has_it else torch.float32)
    model(tokens_BT)
    assert formats == [torch.float32]


# Where the graph breaks, the compiler asks an activation for its .grad, and PyTorch warns of that.
@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")
@pytest.mark.parametrize("type_", TYPES)
def test_a_compiled_model_computes_the_same(type_):
    """PyTorch's compiler leaves recurrent layers as they are: they are kernels already."""
    model, tokens_BT = build_away_from_zero(tiny_recurrent(type_)), torch.randint(VOCAB_SIZE, (2, 8))
    torch.testing.assert_close(torch.compile(model, backend="eager")(tokens_BT), model(tokens_BT))
