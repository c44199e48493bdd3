import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from pellucid.errors import ConfigError, DataError, PellucidError
from pellucid.generation import text as text_module
from pellucid.generation.engine import in_step
from pellucid.generation.in_step import InStep
from pellucid.generation.sampling import Sampling
from pellucid.generation.stream import first_stop
from pellucid.generation.text import Completion, generate_text, search_text, stream_text
from pellucid.model.decoder import Decoder
from pellucid.tokenizer import Tokenizer
from pellucid.tokenizer.train import train_byte_pairs, train_characters

MakeDecoder = Callable[..., Decoder]
FAMILY = "👨‍👩‍👧"  # three people and two zero-width joiners: one glyph of 18 bytes
EXCERPT = f"the fox saw the crow. the crow saw the cheese. ça va? {FAMILY} the end\0" * 3
SPECIAL_TOKENS = ("<|endoftext|>", "<|user|>", "<|pause|>")
CONTEXT_LENGTH = 16

BYTE_PAIRS = train_byte_pairs([EXCERPT], vocab_size=280, special_tokens=SPECIAL_TOKENS)
CHARACTERS = train_characters([EXCERPT], special_tokens=SPECIAL_TOKENS)
tokenizers = pytest.mark.parametrize("tokenizer", [BYTE_PAIRS, CHARACTERS], ids=["bpe", "char"])


@pytest.fixture
def model(make_decoder: MakeDecoder) -> Decoder:
    return make_decoder(vocab_size=BYTE_PAIRS.vocab_size, context_length=CONTEXT_LENGTH)


def completions_of(
    model: Decoder,
    prompt: str = "",
    *,
    tokenizer: Tokenizer = BYTE_PAIRS,
    n_samples: int = 1,
    max_new_tokens: int = 30,
    sampling: Sampling = Sampling(temperature=2.0),  # noqa: B008 (frozen)
    stop: list[str] | tuple[str, ...] = (),
    seed: int | None = 0,
) -> list[Completion]:
    return generate_text(
        model,
        tokenizer,
        prompt,
        n_samples=n_samples,
        max_new_tokens=max_new_tokens,
        sampling=sampling,
        stop=stop,
        seed=seed,
    )


def pieces_of(
    model: Decoder,
    prompt: str,
    *,
    tokenizer: Tokenizer = BYTE_PAIRS,
    max_new_tokens: int = 30,
    stop: list[str] | tuple[str, ...] = (),
    seed: int = 0,
) -> list[str]:
    options = {"max_new_tokens": max_new_tokens, "sampling": Sampling(temperature=2.0), "stop": stop, "seed": seed}
    return list(stream_text(model, tokenizer, prompt, **options))  # type: ignore[arg-type]


def read_by(model: Decoder, prompt: str) -> list[int]:
    """The tokens that the model reads before it writes."""
    read: list[list[int]] = []

    def noted(memory: InStep, unread_of: dict[int, list[int]], begin: Any = InStep.begin) -> Tensor:
        read.append(list(unread_of[0]))
        logits_NV: Tensor = begin(memory, unread_of)
        return logits_NV

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(InStep, "begin", noted)
        completions_of(model, prompt, max_new_tokens=1)
    return read[0]


@tokenizers
@pytest.mark.parametrize("seed", range(2))
def test_each_sample_ends_before_its_own_first_stop_string_and_the_stream_too(
    make_decoder: MakeDecoder, tokenizer: Tokenizer, seed: int
) -> None:
    model = make_decoder(vocab_size=tokenizer.vocab_size)
    free = completions_of(model, "the fox", tokenizer=tokenizer, n_samples=4, seed=seed)
    pieces = pieces_of(model, "the fox", tokenizer=tokenizer, seed=seed)
    assert free[0].completion == tokenizer.decode(free[0].token_ids) == "".join(pieces)
    assert all(pieces)
    assert len(pieces) > 3
    longest = sorted((each.completion for each in free), key=len)[-2:]
    parts = [re.findall("[^\ufffd]{2,4}", text) for text in longest]  # without bytes that are no character
    stop = [each[len(each) // 2] for each in parts]
    stopped = completions_of(model, "the fox", tokenizer=tokenizer, n_samples=4, stop=stop, seed=seed)
    for before, after in zip(free, stopped, strict=True):
        start = first_stop(before.completion, stop)
        assert after.completion == before.completion[:start]
        assert after.finish_reason == (before.finish_reason if start is None else "stop")
        n_tokens = len(after.token_ids)
        assert after.token_ids == before.token_ids[:n_tokens]
        if start is not None:
            assert first_stop(tokenizer.decode(after.token_ids), stop) == start
            assert first_stop(tokenizer.decode(after.token_ids[:-1]), stop) is None, "it ends with the last token"
    assert [each.finish_reason for each in stopped].count("stop") >= 2
    pieces = pieces_of(model, "the fox", tokenizer=tokenizer, stop=stop, seed=seed)
    [alone] = completions_of(model, "the fox", tokenizer=tokenizer, stop=stop, seed=seed)
    assert "".join(pieces) == alone.completion


def test_nothing_more_is_computed_once_every_sample_has_met_a_stop_string(
    model: Decoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    [free] = completions_of(model, "the")
    steps: list[int] = []

    def watched(*arguments: Any, **options: Any) -> Iterator[None]:
        for step, _ in enumerate(in_step(*arguments, **options)):
            steps.append(step)
            yield

    monkeypatch.setattr(text_module, "in_step", watched)
    [stopped] = completions_of(model, "the", stop=[free.completion[1:3]])
    assert len(steps) == len(stopped.token_ids) < len(free.token_ids)


def test_an_empty_stop_string_is_a_config_error(model: Decoder) -> None:
    with pytest.raises(ConfigError, match="^stop: an empty string"):
        completions_of(model, stop=["ab", ""])


def searched(model: Decoder, prompt: str = "the fox", **options: object) -> list[Completion]:
    settings = {"n_beams": 3, "max_new_tokens": 12, **options}
    return search_text(model, BYTE_PAIRS, prompt, **settings)  # type: ignore[arg-type]


def test_the_best_of_several_beams_come_best_first_and_a_longer_list_begins_with_a_shorter_one(model: Decoder) -> None:
    best = searched(model, n_best=3)
    scores = [each.to_json()["score"] for each in best]
    assert scores == sorted(scores, reverse=True)
    assert [each.completion for each in searched(model, n_best=2)] == [each.completion for each in best[:2]]
    with pytest.raises(ConfigError, match="^n_samples: 4 texts are more than 3 beams find"):
        searched(model, n_best=4)


def test_a_beam_ends_with_a_stop_string(model: Decoder) -> None:
    [free] = searched(model, n_beams=1)
    stop = free.completion[4:6]
    [stopped] = searched(model, n_beams=1, stop=[stop])
    assert stopped.completion == free.completion[: free.completion.index(stop)]
    assert stopped.finish_reason == "stop"
    assert len(stopped.token_ids) < len(free.token_ids)
    assert all(stop not in each.completion for each in searched(model, n_best=3, stop=[stop]))


def test_an_empty_prompt_begins_a_document_after_an_end_of_text(model: Decoder) -> None:
    end_of_text = BYTE_PAIRS.end_of_text
    assert read_by(model, "") == [end_of_text]
    assert read_by(model, "the") == [end_of_text, *BYTE_PAIRS.encode("the")]


@pytest.mark.parametrize("n_more", [-1, 0, 1, 50])
def test_f22_prompts_around_the_length_of_the_context_tell_what_was_not_read(
    model: Decoder, n_more: int, caplog: pytest.LogCaptureFixture
) -> None:
    prompt = "é" * CONTEXT_LENGTH
    while len(BYTE_PAIRS.encode(prompt)) > CONTEXT_LENGTH + n_more:
        prompt = prompt[:-1]
    prompt += "?" * (CONTEXT_LENGTH + n_more - len(BYTE_PAIRS.encode(prompt)))
    [completion] = completions_of(model, prompt)
    warning = f"the prompt is longer than the context; its first {n_more} tokens were not read"
    assert caplog.messages == ([warning] if n_more > 0 else [])
    assert len(completion.token_ids) == 30


def test_a_character_that_the_vocabulary_lacks_is_a_data_error(model: Decoder) -> None:
    with pytest.raises(DataError, match="Z"):
        completions_of(model, "Z", tokenizer=CHARACTERS)


def test_end_of_text_ends_a_completion_and_is_not_part_of_it(model: Decoder) -> None:
    with torch.no_grad():
        model.embeddings.embedding_VD[BYTE_PAIRS.end_of_text] *= 3
    completions = completions_of(model, n_samples=40, max_new_tokens=100, sampling=Sampling(5.0))
    reasons = [completion.finish_reason for completion in completions]
    assert {"end_of_text", "length"} == set(reasons)
    for completion, reason in zip(completions, reasons, strict=True):
        assert (len(completion.token_ids) < 100) == (reason == "end_of_text")
        assert BYTE_PAIRS.end_of_text not in completion.token_ids


def test_other_control_tokens_are_never_written(model: Decoder) -> None:
    never = set(BYTE_PAIRS.control_ids) - {BYTE_PAIRS.end_of_text}
    assert len(never) == 2
    with torch.no_grad():  # all tokens alike
        model.embeddings.unembedding_VD.zero_()
    completions = completions_of(model, n_samples=60, max_new_tokens=60)
    written = {token_id for completion in completions for token_id in completion.token_ids}
    assert len(written) > 250
    assert not written & never


def test_a_seed_reproduces_all_samples_and_none_gives_new_ones(model: Decoder) -> None:
    texts = [
        [completion.completion for completion in completions_of(model, n_samples=3, seed=seed)]
        for seed in (7, 7, 8, None, None)
    ]
    assert texts[0] == texts[1]
    assert len({tuple(samples) for samples in texts}) == 4


def test_no_new_tokens_asked_for_is_an_empty_completion(model: Decoder) -> None:
    assert completions_of(model, "the fox", max_new_tokens=0) == [Completion("the fox", "", [], "length", 0.0)]
    assert pieces_of(model, "the fox", max_new_tokens=0) == []


def test_tokens_per_second_counts_each_samples_own_tokens_and_time(
    model: Decoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = itertools.count()  # so each step takes a second
    monkeypatch.setattr(text_module, "perf_counter", lambda: next(clock))
    with torch.no_grad():
        model.embeddings.unembedding_VD.zero_()
    completions = completions_of(model, n_samples=30, max_new_tokens=100)
    assert len({completion.finish_reason for completion in completions}) == 2
    for completion in completions:
        n_tokens = len(completion.token_ids)
        seconds = n_tokens + (completion.finish_reason == "end_of_text")
        assert completion.tokens_per_second == pytest.approx(n_tokens / max(1, seconds))


def test_a_completion_as_json_has_the_keys_of_the_command_line(model: Decoder) -> None:
    [completion] = completions_of(model, "the", max_new_tokens=4)
    as_json = completion.to_json()
    assert list(as_json) == ["prompt", "completion", "tokens", "tokens_per_second", "finish_reason"]
    assert as_json["tokens"] == len(completion.token_ids)
    assert as_json["completion"] == completion.completion


@pytest.mark.parametrize(("name", "value"), [("n_samples", 0), ("max_new_tokens", -1), ("seed", -1), ("seed", 2**64)])
def test_counts_and_seeds_out_of_range_are_config_errors_that_name_them(model: Decoder, name: str, value: int) -> None:
    settings = {"n_samples": 1, "max_new_tokens": 1, "seed": 0, name: value}
    with pytest.raises(ConfigError, match=f"^{name}: {value} ") as error:
        completions_of(model, **settings)
    assert isinstance(error.value, PellucidError)
    assert error.value.exit_code == 2
