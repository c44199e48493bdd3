import math
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from pellucid.config.model import BigramConfig, LearnedConfig, RecurrentConfig
from pellucid.errors import ConfigError
from pellucid.generation.answers import Answers, row_uniforms, write_answers
from pellucid.model.build import build_model
from pellucid.model.decoder import Decoder
from pellucid.model.language_model import LanguageModel

MakeDecoder = Callable[..., Decoder]
STOPS = (3, 4)
PROMPTS = [[0, 5, 9], [0], [0, 8, 7, 6, 5, 1, 2], [0, 5, 9], [2, 9, 9, 9], [0, 1], [0, 2], [0, 11]]


def uniforms_of(rows: Sequence[int], n_new: int = 20) -> Tensor:
    return row_uniforms([(7, 0, row) for row in rows], n_new)


@torch.no_grad()
def naive_answer(
    model: LanguageModel,
    prompt: list[int],
    uniforms: list[float],
    temperature: float = 1.0,
    max_positions: int = 10**6,
) -> tuple[list[int], list[float]]:
    """One row alone, without a cache: the first token whose share of the line ends beyond the point."""
    tokens, log_p = list(prompt), []
    for uniform in uniforms:
        if len(tokens) == max_positions:
            break
        weights = [math.exp(logit / temperature) for logit in model(torch.tensor([tokens]))[0, -1].tolist()]
        token, end = 0, weights[0] / sum(weights)
        while end <= uniform:
            token += 1
            end += weights[token] / sum(weights)
        tokens.append(token)
        log_p.append(math.log(weights[token] / sum(weights)))
        if token in STOPS:
            break
    return tokens[len(prompt) :], log_p


def assert_naive(
    found: Answers,
    model: LanguageModel,
    uniforms_NT: Tensor,
    temperature: float = 1.0,
    max_positions: int = 10**6,
) -> None:
    for row, prompt in enumerate(PROMPTS):
        expected, log_p = naive_answer(model.eval(), prompt, uniforms_NT[row].tolist(), temperature, max_positions)
        assert found.token_ids[row] == expected
        torch.testing.assert_close(found.log_probabilities[row], torch.tensor(log_p), atol=1e-4, rtol=0)
        assert found.has_ended[row] == (expected[-1] in STOPS)


@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_answers_in_step_are_those_that_each_row_would_write_alone(
    make_decoder: MakeDecoder, temperature: float
) -> None:
    model = make_decoder(context_length=32)
    uniforms_NT = uniforms_of(range(len(PROMPTS)))
    found = write_answers(model, PROMPTS, uniforms_NT, stop_ids=STOPS, temperature=temperature)
    assert_naive(found, model, uniforms_NT, temperature)
    assert len({len(ids) for ids in found.token_ids}) > 3, "rows should end at different places"


def test_answers_end_where_the_context_does(make_decoder: MakeDecoder) -> None:
    model = make_decoder(context_length=12, position=LearnedConfig(type="learned"))
    uniforms_NT = uniforms_of(range(len(PROMPTS)))
    found = write_answers(model, PROMPTS, uniforms_NT, stop_ids=STOPS)
    assert_naive(found, model, uniforms_NT, max_positions=12)
    lengths = [len(prompt) + len(ids) for prompt, ids in zip(PROMPTS, found.token_ids, strict=True)]
    assert max(lengths) == 12
    assert not all(found.has_ended)


@pytest.mark.parametrize(
    "config",
    [BigramConfig(type="bigram", context_length=8), RecurrentConfig(type="lstm", context_length=8, d_model=8)],
    ids=lambda config: config.type,
)
def test_other_models_answer_too(config: BigramConfig | RecurrentConfig) -> None:
    torch.manual_seed(0)
    model = build_model(config, vocab_size=23)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    uniforms_NT = uniforms_of(range(len(PROMPTS)))
    assert_naive(write_answers(model, PROMPTS, uniforms_NT, stop_ids=STOPS), model, uniforms_NT)


def test_log_probabilities_are_those_of_one_pass_over_prompt_and_answer(make_decoder: MakeDecoder) -> None:
    model = make_decoder(context_length=32).eval()
    found = write_answers(model, PROMPTS, uniforms_of(range(len(PROMPTS))), stop_ids=STOPS)
    for prompt, ids, log_p in zip(PROMPTS, found.token_ids, found.log_probabilities, strict=True):
        with torch.no_grad():
            logits_TV = model(torch.tensor([prompt + ids]))[0]
        expected = logits_TV.log_softmax(dim=-1)[len(prompt) - 1 : -1].gather(-1, torch.tensor(ids)[:, None])[:, 0]
        torch.testing.assert_close(log_p, expected, atol=1e-4, rtol=0)
        assert log_p.dtype == torch.float32


def test_an_answer_does_not_depend_on_the_other_rows_or_their_order(make_decoder: MakeDecoder) -> None:
    model = make_decoder(context_length=32)
    together = write_answers(model, PROMPTS, uniforms_of(range(len(PROMPTS))), stop_ids=STOPS)
    for rows in ([2, 0], [7, 6, 5, 4], [1]):
        some = write_answers(model, [PROMPTS[row] for row in rows], uniforms_of(rows), stop_ids=STOPS)
        assert some.token_ids == [together.token_ids[row] for row in rows]


def test_the_numbers_of_a_row_are_a_function_of_its_seed() -> None:
    numbers = row_uniforms([(0, 5, 1), (0, 5, 2), (1, 5, 1)], 50)
    assert torch.equal(numbers[1:2], row_uniforms([(0, 5, 2)], 50))
    assert torch.equal(numbers[0, :20], row_uniforms([(0, 5, 1)], 20)[0])
    assert len(numbers.unique()) == numbers.numel()
    assert numbers.min() >= 0
    assert numbers.max() < 1


def test_tokens_are_drawn_as_often_as_the_model_says(make_decoder: MakeDecoder) -> None:
    model = make_decoder(context_length=4).eval()
    n = 4000
    found = write_answers(model, [[5]] * n, row_uniforms([(0, row) for row in range(n)], 1), stop_ids=STOPS)
    counts = torch.bincount(torch.tensor(found.token_ids)[:, 0], minlength=23) / n
    with torch.no_grad():
        expected = model(torch.tensor([[5]]))[0, -1].softmax(dim=-1)
    assert (counts - expected).abs().sum() / 2 < 0.04


def test_the_model_keeps_its_mode_and_the_global_generator_its_state(make_decoder: MakeDecoder) -> None:
    model = make_decoder(dropout=0.5).train()
    before = torch.get_rng_state()
    write_answers(model, PROMPTS, uniforms_of(range(len(PROMPTS))), stop_ids=STOPS)
    assert model.training
    assert torch.equal(torch.get_rng_state(), before)


def test_a_prompt_that_fills_the_context_is_refused(make_decoder: MakeDecoder) -> None:
    with pytest.raises(ConfigError, match="a prompt of 12 tokens leaves no room for an answer in 12"):
        write_answers(make_decoder(context_length=12), [[0] * 12, [0]], uniforms_of([0, 1]), stop_ids=STOPS)
