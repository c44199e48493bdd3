import pytest
import torch

from model_axes import VOCAB_SIZE, build_away_from_zero, covering_combinations, float64, tiny_config
from pellucid.config.model import BigramConfig, RecurrentConfig
from pellucid.generation.slots import SlotsOfAnyModel, SlotsOfDecoder, make_slots
from pellucid.model.build import build_model

TEXTS = [[3, 1, 4, 1, 5, 9, 2, 6], [5], [3, 5, 8, 9], [7, 9, 3, 2, 3]]


def assert_slots_give_what_whole_texts_give(slots, model):
    """Text i is read up to i tokens, the rest of it goes in steps, which begin and end at different times."""
    slot_of = {0: 2, 1: 0, 2: 4, 3: 1}
    expected = [model(torch.tensor([text]))[0] for text in TEXTS]
    steps = {}
    for i, text in enumerate(TEXTS):
        slots.empty(slot_of[i])
        n_read = min(i, len(text) - 1)
        if n_read:
            scores_TV = slots.score(slot_of[i], text[:n_read])
            torch.testing.assert_close(scores_TV, expected[i][:n_read])
        steps[i] = n_read
    while steps:
        logits_RV = slots.step({slot_of[i]: TEXTS[i][t] for i, t in steps.items()})
        for logits_V, (i, t) in zip(logits_RV, steps.items(), strict=True):
            torch.testing.assert_close(logits_V, expected[i][t])
            assert slots.length(slot_of[i]) == t + 1
        steps = {i: t + 1 for i, t in steps.items() if t + 1 < len(TEXTS[i])}


def test_texts_side_by_side_give_what_each_gives_as_a_whole(soak):
    fixed = {"attention": ["explicit"], "zero_init_projections": [False], "tied_embeddings": [True]}
    moe = {"type": "moe", "n_experts": 3, "top_k": 2}
    for config in [*covering_combinations(strength=3 if soak else 2, **fixed), tiny_config(feed_forward=moe)]:
        with float64(), torch.inference_mode():
            model = build_away_from_zero(config).eval()
            slots = make_slots(model, n_slots=5)
            assert isinstance(slots, SlotsOfDecoder)
            assert_slots_give_what_whole_texts_give(slots, model)


@pytest.mark.parametrize(
    "model",
    [
        lambda: build_model(BigramConfig(type="bigram", context_length=8), VOCAB_SIZE),
        lambda: build_model(RecurrentConfig(type="lstm", context_length=8, d_model=8), VOCAB_SIZE),
        lambda: build_away_from_zero(tiny_config(attention="linear")),
        lambda: build_away_from_zero(tiny_config(attention={"type": "sliding_window", "window": 4})),
    ],
    ids=["bigram", "lstm", "linear attention", "sliding window"],
)
def test_models_with_one_position_for_all_rows_are_served_one_after_the_other(model):
    with float64(), torch.inference_mode():
        model = model().eval()
        slots = make_slots(model, n_slots=5)
        assert isinstance(slots, SlotsOfAnyModel)
        assert_slots_give_what_whole_texts_give(slots, model)


def test_a_prompt_is_read_without_logits(monkeypatch):
    model = build_away_from_zero(tiny_config(attention="linear")).eval()
    slots = make_slots(model, 1)
    assert isinstance(slots, SlotsOfAnyModel)
    slots.empty(0)
    monkeypatch.setattr(model, "unembed", None)
    slots.read(0, [1, 2, 3])
    assert slots.length(0) == 3


def test_a_layer_that_somebody_listens_to_is_called_as_it_is():
    model = build_away_from_zero(tiny_config()).eval()
    assert isinstance(make_slots(model, 2), SlotsOfDecoder)
    model.blocks[1].feed_forward.sublayer.register_forward_hook(lambda *_: None)
    assert isinstance(make_slots(model, 2), SlotsOfAnyModel)


@pytest.fixture
def one_thread():
    """Several share the work of a kernel by the number of its rows, and so add in another order."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(n_threads)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(
    "choices",
    [{"position": {"type": "rope"}}, {"feed_forward": {"type": "moe", "n_experts": 3}}],
    ids=["rope", "experts"],
)
def test_not_one_bit_of_a_row_depends_on_the_others(choices):
    """Nor on the slot, or on what it held before. float32, widths that are no multiples of anything, 200 positions."""
    sizes = {"context_length": 200, "d_model": 36, "n_heads": 3, "n_kv_heads": 1, "d_ff": 50, "bias": True}
    model = build_away_from_zero(tiny_config(**sizes, **choices), vocab_size=37).eval()
    generator = torch.Generator().manual_seed(0)
    prompt, *others = [torch.randint(37, (n,), generator=generator).tolist() for n in (30, 120, 3, 77)]
    written = torch.randint(37, (40,), generator=generator).tolist()
    alone, crowd = make_slots(model, 16), make_slots(model, 16)
    with torch.inference_mode():
        alone.empty(0)
        alone.read(0, prompt)
        expected = [alone.step({0: token})[0] for token in written]
        for n_others, slot in ((3, 7), (0, 0), (2, 15)):
            for other_slot, other in zip((3, 12, 9), others[:n_others], strict=False):
                crowd.empty(other_slot)
                crowd.read(other_slot, other)
            crowd.empty(slot)
            crowd.read(slot, prompt)
            for t, token in enumerate(written):
                going_on = {other_slot: t % 37 for other_slot in (3, 12, 9)[:n_others] if (t + other_slot) % 5}
                assert torch.equal(crowd.step({slot: token, **going_on})[0], expected[t])
