import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pellucid.data.batches import IGNORE_INDEX
from pellucid.training.objectives import next_token_nats


@given(st.integers(0, 2**32 - 1), st.booleans())
def test_the_loss_is_the_sum_of_minus_log_p_over_the_targets_that_count(seed, short):
    generator = torch.Generator().manual_seed(seed)
    logits_BTV = torch.randn(2, 3, 5, generator=generator)
    logits_BTV = logits_BTV.bfloat16() if short else logits_BTV
    targets_BT = torch.randint(5, (2, 3), generator=generator)
    targets_BT[0, 1] = IGNORE_INDEX
    naive = 0.0
    for b, t in ((0, 0), (0, 2), (1, 0), (1, 1), (1, 2)):
        p_V = logits_BTV[b, t].double().exp()
        naive -= (p_V[targets_BT[b, t]] / p_V.sum()).log().item()
    nats = next_token_nats(logits_BTV, targets_BT)
    assert nats.dtype == torch.float32
    assert nats.item() == pytest.approx(naive, rel=1e-5)


def test_where_no_target_counts_the_loss_is_zero():
    assert next_token_nats(torch.randn(1, 2, 3), torch.full((1, 2), IGNORE_INDEX)).item() == 0.0
