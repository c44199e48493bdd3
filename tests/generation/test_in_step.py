"""How rows that go on in step read what they begin with."""

import pytest
import torch

from model_axes import VOCAB_SIZE, build_away_from_zero, tiny_config
from pellucid.generation import in_step
from pellucid.generation.in_step import InStep, lengths_of_pieces
from pellucid.kernels import products
from rounding import assert_equal_to_rounding


@pytest.mark.parametrize(("U", "T"), [(1, 1), (1, 255), (3, 256), (1, 512), (1, 2048), (1, 5000), (64, 1024)])
def test_a_prompt_is_read_in_pieces_whose_scores_fit_into_memory(U, T):
    pieces = lengths_of_pieces(U, T)
    assert sum(pieces) == T
    assert all(
        0 < piece <= max(in_step.TOKENS_READ_AT_ONCE, in_step.SCORES_READ_AT_ONCE // (U * T)) for piece in pieces
    )
    assert (pieces[0] == in_step.TOKENS_MEASURED) == (T >= in_step.LONG_PROMPT)


def test_a_long_prompt_is_read_by_the_faster_products_with_the_same_logits(monkeypatch):
    chosen = {}
    for module, name, value in [
        (products, "FEWEST_MULTIPLICATIONS", 1),
        (products, "CHOSEN", chosen),
        (in_step, "LONG_PROMPT", 6),
        (in_step, "TOKENS_MEASURED", 2),
    ]:
        monkeypatch.setattr(module, name, value)
    model = build_away_from_zero(tiny_config()).eval()
    prompt = torch.randint(VOCAB_SIZE, (7,)).tolist()
    with torch.inference_mode():
        for n_tokens in (5, 7):
            logits_1V = InStep(model, 1, 8).begin({0: prompt[:n_tokens]})
            assert_equal_to_rounding(logits_1V, model(torch.tensor([prompt[:n_tokens]]))[:, -1], dtype=torch.float32)
            assert bool(chosen) == (n_tokens == 7)
        chosen.clear()
        with torch.autocast("cpu", torch.bfloat16):
            InStep(model, 1, 8).begin({0: prompt})
        assert not chosen
