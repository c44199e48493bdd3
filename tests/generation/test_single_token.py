import copy
import gc
import threading
import weakref
from functools import partial

import pytest
import torch
from torch import nn

from edits import OF_THE_MODEL, edit
from model_axes import VOCAB_SIZE, build_away_from_zero, covering_combinations, float64, tiny_config
from pellucid.generation import single_token
from pellucid.generation.single_token import (
    SingleTokenDecoder,
    own_part,
    reader_of_one_token,
    without_onednn,
)
from pellucid.generation.slots import make_slots
from pellucid.kernels.products import gains_from_layout, has_onednn
from pellucid.model import attention, positions
from pellucid.model.decoder import Decoder
from pellucid.model.embeddings import TiedEmbeddings
from pellucid.model.norms import LayerNorm
from pellucid.model.one_token import side_by_side
from rounding import assert_equal_to_rounding


def test_a_single_token_gives_what_the_whole_text_gives(soak):
    tokens_BT = torch.randint(VOCAB_SIZE, (3, 8), generator=torch.Generator().manual_seed(0))
    moe = {"type": "moe", "n_experts": 4, "top_k": 2, "shared_experts": 1}
    for config in [*covering_combinations(strength=3 if soak else 2), tiny_config(feed_forward=moe)]:
        with float64(), torch.inference_mode():
            model = build_away_from_zero(config).eval()
            slow = f"{own_part(model)} is written by the model itself: give it an on_one_token, or no place in AXES"
            assert own_part(model) is None, slow
            assert isinstance(reader_of_one_token(model), SingleTokenDecoder)
            expected_BTV = model(tokens_BT)
            for n_read_before in (0, 5):
                cache, single_token = model.new_state(3), SingleTokenDecoder(model)
                if n_read_before:
                    model(tokens_BT[:, :n_read_before], cache)
                for t in range(n_read_before, 8):
                    logits_BV = single_token(tokens_BT[:, t], cache)
                    torch.testing.assert_close(logits_BV, expected_BTV[:, t])
                assert cache.length == 8


def test_a_token_after_a_full_context_is_refused_and_leaves_the_cache_as_it_is():
    model = build_away_from_zero(tiny_config())
    cache, single_token = model.new_state(1), SingleTokenDecoder(model)
    with torch.inference_mode():
        model(torch.zeros(1, 8, dtype=torch.long), cache)
        with pytest.raises(ValueError, match="9 tokens are more than the context_length of 8"):
            single_token(torch.zeros(1, dtype=torch.long), cache)
    assert cache.length == 8


def test_under_autocast_products_are_computed_in_bfloat16():
    model = build_away_from_zero(tiny_config(bias=True)).eval()
    tokens_BT = torch.randint(VOCAB_SIZE, (2, 8))
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        expected_BTV = model(tokens_BT)
        cache, single_token = model.new_state(2), SingleTokenDecoder(model)
        logits_BTV = torch.stack([single_token(tokens_BT[:, t], cache) for t in range(8)], dim=1)
    assert logits_BTV.dtype == torch.bfloat16
    assert_equal_to_rounding(logits_BTV, expected_BTV, dtype=torch.bfloat16)


def test_the_settings_of_kernels_are_put_back():
    model = build_away_from_zero(tiny_config())
    assert torch.backends.mkldnn.enabled
    with torch.inference_mode():
        SingleTokenDecoder(model)(torch.zeros(1, dtype=torch.long), model.new_state(1))
    assert torch.backends.mkldnn.enabled


def test_a_table_made_while_a_text_was_written_serves_gradients_too():
    """Tables of positions are shared by all models of a shape, and a tensor of inference mode has no gradient."""
    positions._cos_and_sin.cache_clear()
    model, token_1 = build_away_from_zero(tiny_config()), torch.zeros(1, dtype=torch.long)
    with torch.inference_mode():
        SingleTokenDecoder(model)(token_1, model.new_state(1))
    assert SingleTokenDecoder(model)(token_1, model.new_state(1)).requires_grad


def test_the_settings_of_kernels_are_put_back_by_the_last_of_several_threads():
    """As in a server that is asked about two runs at once."""
    first, second = without_onednn(), without_onednn()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert not torch.backends.mkldnn.enabled
    second.__exit__(None, None, None)
    assert torch.backends.mkldnn.enabled


@pytest.mark.parametrize("n_rows", [1, 7, 33])
@pytest.mark.parametrize("has_bias", [False, True])
def test_a_large_product_is_that_of_the_plain_form_for_any_number_of_rows(n_rows, has_bias):
    generator = torch.Generator().manual_seed(n_rows)
    linear = nn.Linear(256, 600, bias=has_bias)
    assert gains_from_layout(linear.weight) == has_onednn()
    x_BI = torch.randn(n_rows, 256, generator=generator)
    with torch.inference_mode():
        assert_equal_to_rounding(side_by_side(linear)(x_BI), linear(x_BI), dtype=torch.float32)


class Damped(nn.Module):
    """A feed-forward layer that nobody has seen before."""

    def __init__(self):
        super().__init__()
        self.widen, self.W_2 = nn.Linear(8, 5), nn.Linear(5, 8)

    def forward(self, x_BTD):
        return self.W_2(self.widen(x_BTD).tanh())


def listening(layer, calls):
    layer.register_forward_hook(lambda *call: calls.append(call))
    return layer


def test_a_layer_without_a_lean_form_is_called_as_it_is():
    calls = []
    model = build_away_from_zero(tiny_config(qk_norm=True)).eval()
    model.blocks[0].feed_forward.sublayer = Damped()
    attention = model.blocks[1].attention.sublayer
    attention.W_V = nn.Sequential(attention.W_V, nn.Tanh())
    listening(model.blocks[1].feed_forward.sublayer.W_1, calls)
    tokens_BT = torch.randint(VOCAB_SIZE, (3, 8))
    with torch.inference_mode():
        expected_BTV = model(tokens_BT)
        cache, single_token = model.new_state(3), SingleTokenDecoder(model)
        logits_BTV = torch.stack([single_token(tokens_BT[:, t], cache) for t in range(8)], dim=1)
    torch.testing.assert_close(logits_BTV, expected_BTV)
    assert len(calls) == 1 + 8
    assert own_part(model) == "Damped, Sequential, Linear"


def weaker(x, by):
    return by * x.relu()


def test_a_function_of_one_s_own_is_called_as_it_is_too():
    model = build_away_from_zero(tiny_config(activation="gelu_tanh")).eval()
    assert own_part(model) is None
    model.blocks[0].feed_forward.sublayer.activation = partial(weaker, by=0.5)
    assert isinstance(reader_of_one_token(model), SingleTokenDecoder)
    assert own_part(model) == "weaker"


def test_a_model_that_somebody_copied_is_read_by_the_lean_decoder_too():
    assert isinstance(
        reader_of_one_token(copy.deepcopy(build_away_from_zero(tiny_config())).eval()), SingleTokenDecoder
    )


def each_sees_itself(q, k, v, dropout, mask):
    return v[:, :, -q.size(2) :]


class Louder(LayerNorm):
    def forward(self, x):
        return 2 * super().forward(x)


class Hotter(TiedEmbeddings):
    def unembed(self, x_BTD):
        return super().unembed(x_BTD) / 2


class Hidden(nn.Module):
    """Embeddings that nobody has seen before."""

    def __init__(self, inner):
        super().__init__()
        self.embedding_VD, self.embed, self.unembed = inner.embedding_VD, inner.embed, inner.unembed


COMPUTES_ELSE = "a layer that computes something else than its equation"


class Cooler(Decoder):
    def forward(self, tokens_BT, state=None):
        return 2 * super().forward(tokens_BT, state)


CHANGES = {
    "a decoder derived from ours": lambda model: setattr(model, "__class__", Cooler),
    "another attention": lambda model: setattr(model.blocks[0].attention.sublayer, "attend", each_sees_itself),
    "a norm derived from ours": lambda model: setattr(model.blocks[0].attention, "norm", Louder(8, bias=False)),
    "the last norm": lambda model: setattr(model, "final_norm", Louder(8, bias=False)),
    "embeddings derived from ours": lambda model: setattr(model.embeddings, "__class__", Hotter),
}


def assert_the_model_itself_writes(model, caplog):
    """With one warning, in slots as well, and what it says."""
    tokens_BT = torch.randint(VOCAB_SIZE, (2, 8))
    with torch.inference_mode():
        expected_BTV = model(tokens_BT)
        cache, read_one, slots = model.new_state(2), reader_of_one_token(model), make_slots(model, 2)
        assert not isinstance(read_one, SingleTokenDecoder)
        lean_BTV = torch.stack([read_one(tokens_BT[:, t], cache) for t in range(8)], dim=1)
        for slot in (0, 1):
            slots.empty(slot)
        slots_BTV = torch.stack([slots.step(dict(enumerate(tokens_BT[:, t].tolist()))) for t in range(8)], dim=1)
    torch.testing.assert_close(lean_BTV, expected_BTV)
    torch.testing.assert_close(slots_BTV, expected_BTV)
    assert [record.message for record in caplog.records] == [
        "writes with the model itself, 1.5 x slower: the lean decoder computes something else"
    ]
    assert own_part(model) == COMPUTES_ELSE


@pytest.mark.parametrize("change", CHANGES)
def test_where_a_layer_computes_something_else_the_model_itself_writes(change, caplog):
    model = build_away_from_zero(tiny_config()).eval()
    CHANGES[change](model)
    assert_the_model_itself_writes(model, caplog)


@pytest.mark.parametrize("name", sorted({*OF_THE_MODEL} - {"causal_mask"}))
def test_where_a_function_was_edited_the_model_itself_writes(name, caplog, monkeypatch):
    edit(monkeypatch, name)
    model = build_away_from_zero(tiny_config(activation="relu_squared")).eval()
    assert_the_model_itself_writes(model, caplog)


def seen_nearby(n_queries, n_keys, like):
    """A mask of one's own: a position sees itself and the two before it."""
    mask_TS = like.new_full((n_queries, n_keys), float("-inf"))
    return mask_TS.triu(diagonal=1 + n_keys - n_queries) + mask_TS.tril(diagonal=n_keys - n_queries - 3)


def test_a_model_is_proved_once_and_again_after_any_edit(monkeypatch):
    """An edit of its code, a setting, its weights or its methods: the next text is of the model as it is then."""
    proofs = []
    monkeypatch.setattr(single_token, "last_logits_agree", lambda *_: proofs.append(1) or True)
    model = build_away_from_zero(tiny_config(activation="relu_squared")).eval()

    def is_proved_now() -> bool:
        before = len(proofs)
        reader_of_one_token(model)
        return len(proofs) > before

    assert [is_proved_now(), is_proved_now()] == [True, False]
    for name in OF_THE_MODEL:
        with pytest.MonkeyPatch.context() as edited:
            edit(edited, name)
            assert [is_proved_now(), is_proved_now()] == [True, False], name
        assert is_proved_now(), "it is as before, but that is not remembered"
    with pytest.MonkeyPatch.context() as edited:
        edited.setattr(attention, "causal_mask", lambda n_queries, n_keys, like: like.new_zeros(n_queries, n_keys))
        assert is_proved_now()
    is_proved_now()
    part = model.blocks[0].attention.sublayer
    changes = [
        lambda: part.W_O.weight.mul_(2),
        lambda: setattr(part, "own", 3),
        lambda: setattr(part, "forward", part.forward),
        lambda: model.blocks[0].register_forward_hook(lambda *_: None),
        lambda: setattr(model.blocks[1], "feed_forward", copy.deepcopy(model.blocks[1].feed_forward)),
    ]
    with torch.no_grad():
        for change in changes:
            change()
            assert [is_proved_now(), is_proved_now()] == [True, False]


def test_an_update_by_a_fused_kernel_counts_in_the_next_text():
    """PyTorch's fused AdamW changes weights in place without counting it as a change."""
    decoder = build_away_from_zero(tiny_config()).float().eval()
    optimizer = torch.optim.AdamW(decoder.parameters(), lr=0.1, fused=True)
    tokens_1, before = torch.tensor([1]), []
    for _ in range(2):
        with torch.inference_mode():
            read_one = reader_of_one_token(decoder)
            assert isinstance(read_one, SingleTokenDecoder)
            logits = read_one(tokens_1, decoder.new_state(1))
            torch.testing.assert_close(logits, decoder(tokens_1[None])[:, -1])
        assert not any(torch.equal(logits, other) for other in before)
        before.append(logits)
        decoder(tokens_1[None]).square().sum().backward()
        optimizer.step()


def test_other_threads_may_import_while_it_is_listed_what_decides():
    model, is_over = build_away_from_zero(tiny_config()).eval(), threading.Event()

    def imports() -> None:
        while not is_over.is_set():
            for i in range(100):
                setattr(attention, f"imported_{i}", i)
            for i in range(100):
                delattr(attention, f"imported_{i}")

    thread = threading.Thread(target=imports)
    thread.start()
    try:
        listed = [single_token.all_that_decides(model) for _ in range(60)]
    finally:
        is_over.set()
        thread.join()
    assert all(each == listed[0] for each in listed)


def test_what_was_proved_keeps_no_model():
    model = build_away_from_zero(tiny_config()).eval()
    reader_of_one_token(model)
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


def test_a_mask_that_hides_what_is_further_back_counts_in_writing(caplog, monkeypatch):
    monkeypatch.setattr(attention.causal_mask, "__code__", seen_nearby.__code__)
    assert_the_model_itself_writes(build_away_from_zero(tiny_config()).eval(), caplog)


def test_a_look_into_the_future_is_written_by_the_model_itself(monkeypatch):
    edit(monkeypatch, "causal_mask")
    assert not isinstance(reader_of_one_token(build_away_from_zero(tiny_config()).eval()), SingleTokenDecoder)


def test_unknown_embeddings_are_called_as_they_are():
    model = build_away_from_zero(tiny_config()).eval()
    model.embeddings = Hidden(model.embeddings)
    assert isinstance(reader_of_one_token(model), SingleTokenDecoder)
    assert own_part(model) == "Hidden"


def test_a_damaged_model_is_read_as_it_is(caplog):
    model = build_away_from_zero(tiny_config()).eval()
    model.embeddings.embedding_VD.data[:] = torch.nan
    assert isinstance(reader_of_one_token(model), SingleTokenDecoder)
    assert not caplog.records
