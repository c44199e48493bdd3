"""Models of transformers for the tests, built from the dicts and tensors that export makes: no files."""

import torch

from pellucid.checkpoint.training_state import model_tensors
from pellucid.config.model import DecoderConfig
from pellucid.exchange.architectures import from_hugging_face
from pellucid.model.build import build_model
from rounding import assert_equal_to_rounding

VOCAB_SIZE = 19


def randomised(model):
    """Every parameter moved at random, norms and biases too: no part is silent, and none is as it starts."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return model.eval()


def random_decoder(config):
    torch.default_generator.manual_seed(0)
    return randomised(build_model(config, VOCAB_SIZE))


def built_by_transformers(transformers, hf_config, hf_tensors):
    """The model that `from_pretrained` would build. Its class has no other parameters than those given."""
    config = transformers.AutoConfig.for_model(**hf_config)
    kind, tied = getattr(transformers, hf_config["architectures"][0]), hf_config["tie_word_embeddings"]
    if hf_config["model_type"] in ("mixtral", "gpt_neox"):  # it renames the tensors, or stacks the matrices of experts
        given = {"config": config, "state_dict": dict(hf_tensors), "output_loading_info": True}
        model, said = kind.from_pretrained(None, **given)
        missing, surplus = said["missing_keys"], said["unexpected_keys"]
    else:
        model = kind(config)
        missing, surplus = model.load_state_dict(hf_tensors, strict=False)
        model.tie_weights()
    assert not surplus
    assert set(missing) <= ({"lm_head.weight"} if tied else set())
    return model.eval()


def imported(hf_config, hf_tensors):
    """The decoder with its weights, and its config."""
    config, tensors, vocab_size = from_hugging_face(hf_config, hf_tensors, "DIR")
    model = build_model(config, vocab_size)
    assert model_tensors(model).keys() == tensors.keys()
    model.load_state_dict(tensors, strict=False)
    return model.eval(), config


def assert_same_logits(ours, theirs, context_length=8):
    tokens_BT = torch.randint(VOCAB_SIZE, (2, context_length), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        logits_BTV, expected_BTV = ours(tokens_BT), theirs(tokens_BT).logits
    assert expected_BTV.std() > 0.1
    assert_equal_to_rounding(logits_BTV, expected_BTV)


def assert_names_a_turned_knob(error, config):
    """A knob that was left at its default is nobody's fault."""
    usual = DecoderConfig(context_length=1, d_model=2, n_layers=1, n_heads=1)
    room, *path = error.where.split(".")
    found, default = config, usual
    for key in path:
        found, default = getattr(found, key, None), getattr(default, key, None)
    assert room == "model"
    assert found != default, error
