from math import sqrt

import pytest
import torch

from model.model_axes import covering_combinations, tiny_config
from pellucid.model.build import build_model
from pellucid.model.kv_cache import NoCache

WIDE = {"d_model": 64, "d_ff": 256, "n_layers": 2, "bias": True, "position": {"type": "learned"}}


def test_deviations_are_as_documented():
    torch.manual_seed(0)
    model = build_model(tiny_config(**WIDE, tied_embeddings=False), vocab_size=500)
    matrix_std = sqrt(2 / (5 * 64))
    for name, parameter in model.named_parameters():
        if not name.startswith("blocks.") and parameter.ndim == 2:
            expected = 0.02
        elif name.endswith(("W_O.weight", "W_2.weight")):
            expected = matrix_std / sqrt(2 * 2)
        elif parameter.ndim == 2:
            expected = matrix_std
        else:
            assert torch.all(parameter == (0 if name.endswith("bias") else 1)), name
            continue
        assert parameter.std().item() == pytest.approx(expected, rel=0.08), name
        assert abs(parameter.mean().item()) < 0.1 * expected, name


def test_the_first_matrices_make_outputs_of_0_63_of_the_size_of_their_inputs():
    """sqrt(2 / 5), since each output sums d_model inputs."""
    torch.manual_seed(0)
    model = build_model(tiny_config(**WIDE | {"d_model": 256}), vocab_size=50)
    x_ND = torch.randn(200, 256)
    for block in model.blocks:
        for matrix in (*(getattr(block.attention.sublayer, f"W_{s}") for s in "QKV"), block.feed_forward.sublayer.W_1):
            assert matrix(x_ND).std().item() == pytest.approx(0.63, abs=0.01)


def test_routers_start_small():
    torch.manual_seed(0)
    experts = {"type": "moe", "n_experts": 32, "top_k": 2}
    model = build_model(tiny_config(**WIDE | {"d_ff": 4, "feed_forward": experts}), vocab_size=50)
    for block in model.blocks:
        assert block.feed_forward.sublayer.router.weight.std().item() == pytest.approx(0.02, rel=0.08)


@pytest.mark.parametrize("tied", [True, False])
def test_the_spread_of_token_embeddings_can_be_chosen_and_is_theirs_alone(tied):
    config = tiny_config(**WIDE | {"embedding_std": 0.5, "tied_embeddings": tied, "position": {"type": "learned"}})
    torch.manual_seed(0)
    model = build_model(config, vocab_size=500)
    assert model.embeddings.embedding_VD.std().item() == pytest.approx(0.5, rel=0.02)
    others = [model.positions.positions_TD] if tied else [model.positions.positions_TD, model.embeddings.unembedding_VD]
    assert all(other.std().item() == pytest.approx(0.02, rel=0.05) for other in others)


def test_embeddings_are_not_drowned_by_sinusoidal_positions():
    config = tiny_config(**WIDE | {"position": {"type": "sinusoidal"}}, tied_embeddings=False)
    torch.manual_seed(0)
    for matrix_VD in build_model(config, vocab_size=500).embeddings.parameters():
        assert matrix_VD.std().item() == pytest.approx(1 / sqrt(64), rel=0.02)


def test_zeroed_projections_make_each_pre_norm_block_the_identity():
    model = build_model(tiny_config(**WIDE, zero_init_projections=True), vocab_size=50)
    x_BTD = torch.randn(2, 5, 64)
    for block in model.blocks:
        assert torch.equal(block(x_BTD, NoCache()), x_BTD)


def test_zeroed_projections_change_values_alone():
    """The rest of the model starts as it would have: same seed, same draws, same names and shapes."""
    models = []
    for zero in (False, True):
        torch.manual_seed(0)
        models.append(build_model(tiny_config(**WIDE, zero_init_projections=zero), vocab_size=50))
    plain, zeroed = (dict(model.named_parameters()) for model in models)
    assert plain.keys() == zeroed.keys()
    for name in plain:
        if name.endswith(("W_O.weight", "W_2.weight")):
            assert not zeroed[name].any()
            assert plain[name].any()
        else:
            assert torch.equal(plain[name], zeroed[name]), name


def test_the_copying_start_changes_two_matrices_of_the_last_layer_alone():
    models = []
    for copying in (False, True):
        torch.manual_seed(0)
        config = tiny_config(**WIDE, zero_init_projections=True, copying_init=copying)
        models.append(dict(build_model(config, vocab_size=50).named_parameters()))
    changed = {name for name, parameter in models[0].items() if not torch.equal(parameter, models[1][name])}
    assert changed == {f"blocks.1.attention.sublayer.{matrix}.weight" for matrix in ("W_V", "W_O")}


@pytest.mark.parametrize("copying", [True, False])
def test_a_copying_start_makes_the_token_attended_to_the_likeliest_after_the_one_just_read(copying):
    sizes = WIDE | {"d_model": 256, "position": {"type": "none"}, "embedding_std": 0.4}
    torch.manual_seed(0)
    model = build_model(tiny_config(**sizes, zero_init_projections=True, copying_init=copying), vocab_size=100)
    with torch.no_grad():
        for block in model.blocks:
            block.attention.sublayer.W_Q.weight.zero_()  # attends to both positions alike
        logits_V = model(torch.tensor([[70, 7]]))[0, -1]
    likeliest, second = logits_V.topk(2).indices.tolist()
    assert likeliest == 7
    assert (second == 70) == copying


@pytest.mark.parametrize("attended_to", [[5, 5, 5, 5], [5, 0, 2, 2]], ids=["all heads agree", "each looks elsewhere"])
def test_a_copying_start_adds_half_of_what_is_attended_to_in_the_directions_of_the_head_that_does(attended_to):
    """So it adds half of a position's x only if all heads attend to it (equation 32)."""
    torch.manual_seed(0)
    config = tiny_config(**WIDE | {"n_heads": 4}, copying_init=True)
    attention = build_model(config, vocab_size=50).blocks[-1].attention.sublayer
    attention.attend = lambda _q, _k, v_BHSK, *_: v_BHSK[:, range(4), attended_to][:, :, None].expand_as(v_BHSK)
    x_TD = torch.randn(6, 64)
    added_D = attention(x_TD[None], NoCache())[0, -1]
    directions_HKD = attention.W_V.weight.unflatten(0, (4, 16))
    expected_D = sum(W_KD.T @ W_KD @ x_TD[s] / 2 for W_KD, s in zip(directions_HKD, attended_to, strict=True))
    torch.testing.assert_close(added_D, expected_D)
    is_copy = [torch.allclose(added_D, x_D / 2, atol=1e-5) for x_D in x_TD]
    assert is_copy == [s == 5 and len(set(attended_to)) == 1 for s in range(6)]


def test_no_parameter_is_left_uninitialised():
    """Two builds from one seed are equal: nothing keeps what memory held before."""
    for config in covering_combinations(attention=["explicit"]):
        states = []
        for _ in range(2):
            torch.manual_seed(3)
            states.append(build_model(config, vocab_size=5).state_dict())
        for name in states[0]:
            assert torch.equal(states[0][name], states[1][name]), (config, name)
            assert states[0][name].isfinite().all()
