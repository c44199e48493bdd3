import copy

import torch

from model.model_axes import VOCAB_SIZE, covering_combinations, tiny_config
from pellucid.model.build import build_model


def test_every_part_builds_on_the_meta_device():
    with torch.device("meta"):
        for config in covering_combinations(attention=["explicit"], n_layers=[1]):
            model = build_model(config, VOCAB_SIZE)
            assert all(tensor.is_meta for tensor in (*model.parameters(), *model.buffers()))


def test_names_tell_the_role_of_each_parameter():
    """Training sorts by them: matrices of blocks for Muon, embeddings, and vectors."""
    for config in covering_combinations(attention=["explicit"], zero_init_projections=[False], n_layers=[1]):
        for name, parameter in build_model(config, VOCAB_SIZE).named_parameters():
            outside = name.startswith(("embeddings.", "positions."))
            assert (parameter.ndim == 2) == (outside or (".W_" in name and name.endswith(".weight"))), name
            assert parameter.ndim in (1, 2)


def test_tied_embeddings_are_one_parameter():
    """Equation 3: D = C transposed, in the state as in the count."""
    tied = build_model(tiny_config(tied_embeddings=True), VOCAB_SIZE)
    separate = build_model(tiny_config(tied_embeddings=False), VOCAB_SIZE)
    assert len(tied.state_dict()) == len(list(tied.parameters())) == len(list(separate.parameters())) - 1


def test_a_copy_of_the_model_shares_nothing_with_it():
    model = build_model(tiny_config(position={"type": "rope"}), VOCAB_SIZE)
    tokens_BT = torch.zeros(1, 4, dtype=torch.long)
    copied = copy.deepcopy(model)
    before = model(tokens_BT)
    assert torch.equal(copied(tokens_BT), before)
    with torch.no_grad():
        for tensor in (*copied.parameters(), *copied.buffers()):
            tensor.zero_()
    assert torch.equal(model(tokens_BT), before)


def test_weights_load_into_a_longer_context():
    """Sinusoidal positions, RoPE and none go on beyond the length they were trained on; see Decoder."""
    tokens_BT = torch.randint(VOCAB_SIZE, (2, 8))
    for position in ("sinusoidal", "rope", "none"):
        short = build_model(tiny_config(position={"type": position}, context_length=8), VOCAB_SIZE)
        long = build_model(tiny_config(position={"type": position}, context_length=20), VOCAB_SIZE)
        long.load_state_dict(short.state_dict())
        torch.testing.assert_close(long(tokens_BT), short(tokens_BT))
        assert long(torch.randint(VOCAB_SIZE, (2, 20))).shape == (2, 20, VOCAB_SIZE)
