"""Documents in one row that do not see each other are computed as if each had a row of its own."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from model.model_axes import VOCAB_SIZE, build_away_from_zero, covering_combinations, float64, tiny_config
from pellucid.data.batches import batch_of
from pellucid.data.packing import packed_document_rows
from pellucid.data.token_file import TokenFile
from pellucid.model.documents import document_mask, one_by_one, positions_in_documents
from pellucid.model.recompute import recompute_activations
from pellucid.objectives.next_token import next_token

END = 0
CONTEXT = 8
ATTENTIONS = ["explicit", "fused", {"type": "sliding_window", "window": 3}]
CONFIGS = list(covering_combinations(attention=ATTENTIONS, context_length=[CONTEXT]))


def file_of(documents):
    ends = np.cumsum([0, *(len(document) + 1 for document in documents)])
    tokens = [END, *(token for document in documents for token in (*document, END))]
    return TokenFile("train", np.array(tokens, dtype=np.uint16), ends)


def packed(documents):
    """All rows as one batch."""
    rows = packed_document_rows(file := file_of(documents), CONTEXT)
    return batch_of(file, rows.places(np.arange(len(rows)), int(rows.row_lengths().max())))


def loss_and_gradients(forward, model, batches):
    loss = sum(next_token(forward, batch).sum for batch in batches)
    return loss, torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)


documents_of_any_length = st.lists(
    st.lists(st.integers(1, VOCAB_SIZE - 1), max_size=2 * CONTEXT), min_size=1, max_size=6
)


def test_the_mask_is_equation_48_and_positions_count_from_each_start():
    begins_BT = torch.tensor([[True, False, True, False], [False, False, False, True]])
    o, hidden = 0.0, float("-inf")
    assert document_mask(begins_BT, torch.empty(0)).tolist() == [
        [[[o, hidden, hidden, hidden], [o, o, hidden, hidden], [hidden, hidden, o, hidden], [hidden, hidden, o, o]]],
        [[[o, hidden, hidden, hidden], [o, o, hidden, hidden], [o, o, o, hidden], [hidden, hidden, hidden, o]]],
    ]
    assert positions_in_documents(begins_BT).tolist() == [[0, 1, 0, 1], [0, 1, 2, 0]]


@given(st.sampled_from(CONFIGS), documents_of_any_length)
@settings(deadline=None, max_examples=60)
def test_documents_in_one_row_are_as_documents_in_rows_of_their_own(config, documents):
    """Losses, logits and gradients, with any attention, positions and other parts of the decoder."""
    with float64():
        model = build_away_from_zero(config)
    together = packed(documents)
    file = file_of(documents)
    alone = [
        batch_of(file, np.arange(start, min(start + CONTEXT, end))[None])
        for begin, end in zip(file.boundaries, file.boundaries[1:], strict=False)
        for start in range(begin, end, CONTEXT)
    ]
    loss, gradients = loss_and_gradients(one_by_one(model, END), model, [together])
    expected_loss, expected = loss_and_gradients(model, model, alone)
    torch.testing.assert_close(loss, expected_loss, rtol=1e-9, atol=1e-9)
    for gradient, expected_gradient in zip(gradients, expected, strict=True):
        torch.testing.assert_close(gradient, expected_gradient, rtol=0, atol=1e-9)
    assert together.n_losses == sum(batch.n_losses for batch in alone)


ROW = torch.tensor([[END, 3, 4, END, 5, END, 6, 7]])
NUMBERS = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2])


@pytest.mark.parametrize("attention", ATTENTIONS, ids=str)
@pytest.mark.parametrize("position", ["learned", "rope"])
def test_no_gradient_crosses_from_one_document_to_another(attention, position):
    """d logits_t / d embedding_s is exactly 0 unless s is in the document of t, at t or before it."""
    model = build_away_from_zero(tiny_config(attention=attention, position={"type": position}, n_layers=2))
    entered = []
    model.blocks[0].register_forward_pre_hook(lambda _, inputs: entered.append(inputs[0]))
    logits_TV = one_by_one(model, END)(ROW)[0]
    influence_TS = torch.stack(
        [
            torch.autograd.grad(logits_V.norm(), entered, retain_graph=True)[0][0].abs().sum(dim=-1)
            for logits_V in logits_TV
        ]
    )
    is_own_TS = (NUMBERS[:, None] == NUMBERS).tril()
    assert torch.equal(influence_TS > 0, is_own_TS)
    assert not torch.equal(model(ROW)[0, 3:], logits_TV[3:]), "without this they do see each other"
    assert torch.equal(model(ROW)[0, :3], logits_TV[:3])


@pytest.mark.parametrize("what", ["attention", "cheap", "block"])
def test_what_is_recomputed_is_recomputed_under_the_same_mask(what):
    model = build_away_from_zero(tiny_config())
    forward, batches = one_by_one(model, END), [packed([[1, 2], [3], [4, 5, 6], [7]])]
    _, expected = loss_and_gradients(forward, model, batches)
    recompute_activations(model.blocks, what)
    _, gradients = loss_and_gradients(forward, model, batches)
    assert all(map(torch.equal, gradients, expected))


@pytest.mark.parametrize("attention", ATTENTIONS, ids=str)
def test_the_mask_has_the_type_that_the_layers_compute_in(attention):
    model = build_away_from_zero(tiny_config(attention=attention, qk_norm=True))
    with torch.autocast("cpu", torch.bfloat16):
        logits_BTV = one_by_one(model, END)(ROW)
    torch.testing.assert_close(logits_BTV.float(), one_by_one(model, END)(ROW), rtol=0, atol=0.2)


# The compiler makes an instance of our autograd functions, and PyTorch warns of that, though nobody else can fix it.
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@pytest.mark.parametrize("attention", ATTENTIONS, ids=str)
def test_mask_and_positions_are_part_of_the_one_graph_of_a_compiled_model(attention):
    model = build_away_from_zero(tiny_config(attention=attention, position={"type": "learned"}))
    forward = one_by_one(model, END)
    compiled = torch.compile(forward, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(ROW), forward(ROW))
