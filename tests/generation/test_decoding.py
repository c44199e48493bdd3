from collections.abc import Callable

import pytest
import torch

from pellucid.config.model import LearnedConfig, NoPositionConfig, RotaryConfig, SinusoidalConfig
from pellucid.generation import decoding
from pellucid.generation.decoding import generate_tokens
from pellucid.generation.sampling import Sampling, next_token
from pellucid.model.decoder import Decoder

MakeDecoder = Callable[..., Decoder]
NEVER = -1  # an end_of_text that no token is
GREEDY = Sampling(temperature=0)
LIVELY = Sampling(temperature=1.5, top_k=9, top_p=0.95)
VARIED = Sampling(temperature=1.5, min_p=0.02, repetition_penalty=1.3)


@torch.no_grad()
def naive_tokens(
    model: Decoder, prompt_ids: list[int], n_samples: int, n_new: int, sampling: Sampling, seed: int
) -> list[list[int]]:
    """What generate_tokens promises, without a cache: each step reads its whole window from the start."""
    generator = torch.Generator().manual_seed(seed)
    seen = torch.zeros(n_samples, model.vocab_size, dtype=torch.bool)
    rows = [list(prompt_ids) for _ in range(n_samples)]
    start = max(0, len(prompt_ids) - model.context_length)
    for _ in range(n_new):
        if len(rows[0]) - start > model.context_length:
            start = len(rows[0]) - max(1, model.context_length // 2)
        logits_BTV = model(torch.tensor([row[start:] for row in rows]))
        for sample, row in enumerate(rows):
            seen[sample, row] = True
        token_ids = next_token(logits_BTV[:, -1], sampling, generator, seen).tolist()
        for row, token_id in zip(rows, token_ids, strict=True):
            row.append(token_id)
    return [row[len(prompt_ids) :] for row in rows]


def generated(
    model: Decoder,
    prompt_ids: list[int],
    *,
    n_samples: int = 1,
    max_new_tokens: int = 40,
    sampling: Sampling = LIVELY,
    end_of_text: int = NEVER,
    seed: int = 0,
    forbidden_ids: tuple[int, ...] = (),
) -> list[list[int]]:
    """The rows, one per sample, that the stream of steps gives."""
    steps = generate_tokens(
        model,
        prompt_ids,
        n_samples=n_samples,
        max_new_tokens=max_new_tokens,
        sampling=sampling,
        stop_ids=[end_of_text],
        seed=seed,
        forbidden_ids=forbidden_ids,
    )
    return [list(row) for row in zip(*steps, strict=True)]


POSITIONS = [RotaryConfig(type="rope"), LearnedConfig(type="learned"), SinusoidalConfig(type="sinusoidal")]
SAMPLINGS = [GREEDY, LIVELY, VARIED]


@pytest.mark.parametrize("prompt_length", [1, 5, 11, 12, 13, 40])
@pytest.mark.parametrize("i", range(3))
def test_generation_with_a_cache_equals_naive_full_forwards_within_and_past_the_context(
    make_decoder: MakeDecoder, i: int, prompt_length: int, soak: bool
) -> None:
    """Positions slide twice. Any two of prompt, position and way to draw meet; in the long form all three."""
    model = make_decoder(position=POSITIONS[i]).eval()
    prompt_ids = [(7 * k) % 23 for k in range(prompt_length)]
    for sampling in SAMPLINGS if soak else [SAMPLINGS[(i + prompt_length // 5) % 3]]:
        expected = naive_tokens(model, prompt_ids, 3, 24, sampling, seed=5)
        assert generated(model, prompt_ids, n_samples=3, max_new_tokens=24, sampling=sampling, seed=5) == expected
        assert len({token_id for row in expected for token_id in row}) > 3


@pytest.mark.parametrize("context_length", [1, 2, 3, 5])
def test_sliding_works_for_the_smallest_contexts(make_decoder: MakeDecoder, context_length: int) -> None:
    model = make_decoder(context_length=context_length).eval()
    expected = naive_tokens(model, [4, 8], 2, 15, LIVELY, seed=1)
    assert generated(model, [4, 8], n_samples=2, max_new_tokens=15, seed=1) == expected


def test_sliding_reads_each_token_at_most_twice(make_decoder: MakeDecoder) -> None:
    model = make_decoder(context_length=16)
    n_read: list[int] = []
    model.register_forward_pre_hook(lambda _, inputs: n_read.append(inputs[0].shape[1]))
    generated(model, [0], max_new_tokens=500)
    assert sum(n_read) <= 2 * 500


def test_a_prompt_longer_than_the_context_goes_on_like_its_last_tokens(make_decoder: MakeDecoder) -> None:
    model = make_decoder(context_length=12)
    prompt_ids = [(5 * i) % 23 for i in range(100)]
    assert generated(model, prompt_ids) == generated(model, prompt_ids[-12:])
    assert generated(model, prompt_ids) != generated(model, prompt_ids[-11:])


def test_a_prompt_read_in_pieces_gives_the_same_tokens(
    make_decoder: MakeDecoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_decoder(context_length=30)
    prompt_ids = [(5 * i) % 23 for i in range(25)]
    at_once = generated(model, prompt_ids)
    lengths: list[int] = []
    model.register_forward_pre_hook(lambda _, inputs: lengths.append(inputs[0].shape[1]))
    monkeypatch.setattr(decoding, "TOKENS_READ_AT_ONCE", 7)
    assert generated(model, prompt_ids) == at_once
    assert max(lengths) == 7


def test_greedy_samples_in_a_batch_equal_one_alone(make_decoder: MakeDecoder) -> None:
    model = make_decoder()
    [alone] = generated(model, [1, 2], sampling=GREEDY)
    assert generated(model, [1, 2], sampling=GREEDY, n_samples=5) == [alone] * 5


def test_samples_in_a_batch_differ_and_are_reproduced_by_their_seed(make_decoder: MakeDecoder) -> None:
    model = make_decoder()
    rows = generated(model, [1], n_samples=4, seed=3)
    assert len({tuple(row) for row in rows}) == 4
    assert generated(model, [1], n_samples=4, seed=3) == rows
    assert generated(model, [1], n_samples=4, seed=4) != rows


def test_the_global_random_numbers_are_untouched_and_have_no_influence(make_decoder: MakeDecoder) -> None:
    model = make_decoder(dropout=0.5)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    rows = generated(model.train(), [1])
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert generated(model, [1]) == rows


@pytest.mark.parametrize("was_training", [True, False])
def test_the_model_is_in_eval_mode_meanwhile_and_gets_its_mode_back(
    make_decoder: MakeDecoder, was_training: bool
) -> None:
    model = make_decoder(dropout=0.5).train(was_training)
    modes: list[bool] = []
    model.register_forward_pre_hook(lambda module, _: modes.append(module.training))
    generated(model, [1], max_new_tokens=3)
    assert set(modes) == {False}
    assert all(module.training == was_training for module in model.modules())


def test_the_mode_comes_back_when_the_reader_stops_early_or_the_model_fails(make_decoder: MakeDecoder) -> None:
    model = make_decoder().train()
    steps = generate_tokens(model, [1], n_samples=1, max_new_tokens=9, sampling=GREEDY, stop_ids=[NEVER], seed=0)
    next(steps)
    steps.close()
    assert model.training

    def fail(*_: object) -> None:
        raise MemoryError

    model.register_forward_pre_hook(fail)
    with pytest.raises(MemoryError):
        generated(model, [1])
    assert model.training


def test_the_model_is_in_inference_mode_and_the_reader_of_the_stream_is_not(make_decoder: MakeDecoder) -> None:
    model = make_decoder()
    modes: list[bool] = []
    model.register_forward_pre_hook(lambda *_: modes.append(torch.is_inference_mode_enabled()))
    for _ in generate_tokens(model, [1], n_samples=1, max_new_tokens=2, sampling=GREEDY, stop_ids=[NEVER], seed=0):
        assert not torch.is_inference_mode_enabled()
    assert set(modes) == {True}


def test_a_sample_that_drew_end_of_text_stays_ended_and_all_ended_end_the_stream(
    make_decoder: MakeDecoder,
) -> None:
    model = make_decoder(context_length=64)
    free = generated(model, [1], n_samples=4, max_new_tokens=60, seed=2)
    end_of_text = free[0][5]
    rows = generated(model, [1], n_samples=4, max_new_tokens=60, seed=2, end_of_text=end_of_text)
    n_steps = len(rows[0])
    ends = [row.index(end_of_text) if end_of_text in row else 60 for row in free]
    assert len(set(ends)) > 1
    assert n_steps == min(60, max(ends) + 1)
    for row, free_row, end in zip(rows, free, ends, strict=True):
        assert row == (free_row[:end] + [end_of_text] * n_steps)[:n_steps]


def test_end_of_text_in_the_prompt_does_not_end_the_sample(make_decoder: MakeDecoder) -> None:
    model = make_decoder()
    [row] = generated(model, [3], sampling=GREEDY, max_new_tokens=8)
    absent = next(token_id for token_id in range(23) if token_id not in row)
    [row] = generated(model, [absent, 3], sampling=GREEDY, max_new_tokens=1, end_of_text=absent)
    assert len(row) == 1


def test_a_repetition_penalty_counts_the_prompt_but_not_the_end_of_text_before_it(make_decoder: MakeDecoder) -> None:
    model = make_decoder()
    [[likeliest]] = generated(model, [0, 3], sampling=GREEDY, max_new_tokens=1)
    penalized = Sampling(temperature=0, repetition_penalty=1e6)
    prompt_ids = [likeliest] * 20 + [0, 3]  # beyond the context, so the model cannot see all of them
    [[greedy]] = generated(model, prompt_ids, sampling=GREEDY, max_new_tokens=1)
    assert [[greedy]] == generated(model, prompt_ids, sampling=penalized, max_new_tokens=1, end_of_text=greedy)
    prompt_ids.insert(0, greedy)
    assert [[greedy]] != generated(model, prompt_ids, sampling=penalized, max_new_tokens=1)


def test_no_new_tokens_asked_for_gives_none(make_decoder: MakeDecoder) -> None:
    assert generated(make_decoder(), [1], max_new_tokens=0) == []


@pytest.mark.parametrize("sampling", [GREEDY, Sampling(1e4), Sampling(1e4, top_k=23, top_p=0.99)], ids=str)
def test_forbidden_tokens_are_never_drawn(make_decoder: MakeDecoder, sampling: Sampling) -> None:
    model = make_decoder(position=NoPositionConfig(type="none"))
    free = generated(model, [1], n_samples=20, sampling=sampling)
    forbidden_ids = tuple({token_id for row in free for token_id in row if token_id % 2})
    assert forbidden_ids
    rows = generated(model, [1], n_samples=20, sampling=sampling, forbidden_ids=forbidden_ids)
    assert not {token_id for row in rows for token_id in row} & set(forbidden_ids)


def test_generation_works_under_bfloat16_autocast(make_decoder: MakeDecoder) -> None:
    with torch.autocast("cpu", torch.bfloat16):
        rows = generated(make_decoder(), [1], n_samples=2)
    assert all(0 <= token_id < 23 for row in rows for token_id in row)
