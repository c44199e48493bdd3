"""Continuous batching against `generate_tokens` and a naive loop: each text is what it would be alone."""

import gc
import itertools
import random
import traceback
import weakref
from collections.abc import Callable, Sequence

import pytest
import torch

from pellucid.config.model import BigramConfig, RecurrentConfig
from pellucid.errors import NonFiniteError, is_out_of_memory
from pellucid.generation import continuous
from pellucid.generation.continuous import ContinuousBatch, Request, Writing
from pellucid.generation.decoding import generate_tokens
from pellucid.generation.sampling import Sampling
from pellucid.generation.slots import SlotsOfAnyModel
from pellucid.generation.text import before_stop, decode_stream, generate_text
from pellucid.model.build import build_model
from pellucid.model.decoder import Decoder
from pellucid.model.language_model import LanguageModel
from pellucid.tokenizer import Tokenizer
from pellucid.tokenizer.train import train_byte_pairs

MakeDecoder = Callable[..., Decoder]
PROMPTS = ["", "The fox", "The", "The hen said: I", "a" * 40, "é", "The fox said: 🦊"]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    texts = ["The fox said: I found the cheese.", "The hen said: I lost the corn."]
    return train_byte_pairs(texts, vocab_size=270, special_tokens=["<|endoftext|>"])


@pytest.fixture
def model(make_decoder: MakeDecoder, tokenizer: Tokenizer) -> Decoder:
    return make_decoder(vocab_size=tokenizer.vocab_size, context_length=24).eval()


def ids_of(tokenizer: Tokenizer, prompt: str) -> list[int]:
    return [tokenizer.end_of_text, *tokenizer.encode(prompt)]


def added(batch: ContinuousBatch, request: Request) -> Writing:
    writing = Writing(request)
    batch.add(writing)
    return writing


def write_all(batch: ContinuousBatch, requests: Sequence[Request], join_every: int = 0) -> list[Writing]:
    """Texts that join one after the other, `join_every` steps apart."""
    written = []
    for request in requests:
        written.append(added(batch, request))
        for _ in range(join_every):
            batch.step()
    while not all(writing.has_ended for writing in written):
        batch.step()
    return written


def text_of(writing: Writing) -> str:
    return "".join(piece.text for piece in writing.pieces)


def ids_written(writing: Writing) -> list[int]:
    return [token.id for piece in writing.pieces for token in piece.tokens]


def reason_of(writing: Writing) -> str | None:
    return writing.pieces[-1].finish_reason


def mixed_requests(tokenizer: Tokenizer) -> list[Request]:
    """Every prompt with every way of drawing, in a random order."""
    ways = [
        Sampling(),
        Sampling(temperature=0),
        Sampling(temperature=0.7, top_k=20, top_p=0.9),
        Sampling(min_p=0.02, repetition_penalty=1.3),
    ]
    pairs = list(itertools.product(PROMPTS, ways))
    random.Random(0).shuffle(pairs)
    return [
        Request(ids_of(tokenizer, prompt), 5 + 3 * i % 31, way, stop=("the", "zz"), seed=(7, i))
        for i, (prompt, way) in enumerate(pairs)
    ]


@pytest.mark.parametrize(("n_slots", "join_every"), [(16, 0), (3, 4)])
def test_a_seeded_text_is_the_same_alone_and_in_a_crowd(model, tokenizer, n_slots, join_every):
    requests = mixed_requests(tokenizer)
    crowd = write_all(ContinuousBatch(model, tokenizer, n_slots), requests, join_every)
    alone = ContinuousBatch(model, tokenizer, n_slots)
    for request, writing in zip(requests, crowd, strict=True):
        [by_itself] = write_all(alone, [request])
        assert (text_of(writing), ids_written(writing)) == (text_of(by_itself), ids_written(by_itself))
        assert reason_of(writing) == reason_of(by_itself)
    assert len({reason_of(writing) for writing in crowd}) >= 2


@pytest.mark.parametrize("max_new_tokens", [1, 7, 70])
def test_a_greedy_text_is_that_of_generate_also_beyond_the_context(model, tokenizer, max_new_tokens):
    greedy = Sampling(temperature=0)
    prompts = [ids_of(tokenizer, prompt) for prompt in PROMPTS]
    batch = ContinuousBatch(model, tokenizer, 4)
    for writing, prompt in zip(
        write_all(batch, [Request(ids, max_new_tokens, greedy) for ids in prompts]), prompts, strict=True
    ):
        steps = generate_tokens(
            model,
            prompt,
            n_samples=1,
            max_new_tokens=max_new_tokens,
            sampling=greedy,
            stop_ids=tokenizer.stop_ids,
            seed=0,
        )
        assert ids_written(writing) == [id_ for (id_,) in steps if id_ not in tokenizer.stop_ids]


def other_families(vocab_size: int) -> list[LanguageModel]:
    configs = [BigramConfig(type="bigram", context_length=8), RecurrentConfig(type="gru", context_length=8, d_model=8)]
    torch.manual_seed(0)
    models = [build_model(config, vocab_size) for config in configs]
    for parameter in itertools.chain(*(model.parameters() for model in models)):
        torch.nn.init.normal_(parameter, std=0.5)
    return models


def test_stop_strings_and_reasons_are_those_of_generate(make_decoder, tokenizer):
    decoders = [
        make_decoder(vocab_size=tokenizer.vocab_size, context_length=24, attention=kind)
        for kind in ("explicit", "linear")
    ]
    greedy = Sampling(temperature=0)
    for model in [*decoders, *other_families(tokenizer.vocab_size)]:
        batch = ContinuousBatch(model, tokenizer, 3)
        [whole] = generate_text(model, tokenizer, "The", n_samples=1, max_new_tokens=40, sampling=greedy)
        middle = whole.completion[len(whole.completion) // 2 :][:3]
        for stop in ((), (middle,), ("\x00", middle[1:]), ("no such text",)):
            [expected] = generate_text(
                model, tokenizer, "The", n_samples=1, max_new_tokens=40, sampling=greedy, stop=stop
            )
            [writing] = write_all(batch, [Request(ids_of(tokenizer, "The"), 40, greedy, stop=stop)])
            assert (text_of(writing), reason_of(writing)) == (expected.completion, expected.finish_reason)


def test_pieces_are_those_that_a_stream_would_have(model, tokenizer):
    for writing in write_all(ContinuousBatch(model, tokenizer), mixed_requests(tokenizer)):
        stream = before_stop(decode_stream(tokenizer, ids_written(writing)), writing.request.stop)
        assert text_of(writing) == "".join(stream)
        so_far = ""
        for piece in writing.pieces:
            assert piece.text or piece.tokens or piece.finish_reason
            so_far += piece.text
            for token in piece.tokens:
                assert token.offset < len(so_far) or piece.finish_reason
                assert tokenizer.token_bytes(token.id).decode("utf-8", "ignore")[:1] in so_far[token.offset :]


def test_scores_are_those_of_one_pass_over_prompt_and_text(model, tokenizer):
    prompt = ids_of(tokenizer, "The fox said")
    request = Request(prompt, 8, Sampling(temperature=0.5, top_k=9), seed=(1,), n_likeliest=4, scores_prompt=True)
    [writing] = write_all(ContinuousBatch(model, tokenizer), [request])
    new = [token for piece in writing.pieces for token in piece.tokens]
    with torch.inference_mode():
        ids = [*prompt, *ids_written(writing)]
        scores_TV = model(torch.tensor([ids]))[0].log_softmax(dim=-1)
    assert [token.id for token in writing.prompt_tokens] == prompt[1:]
    for t, token in enumerate([*writing.prompt_tokens, *new]):
        assert token.id == ids[t + 1]
        assert token.log_p == pytest.approx(scores_TV[t, token.id].item(), abs=1e-4)
        best = scores_TV[t].topk(4)
        assert [id_ for id_, _ in token.likeliest] == best.indices.tolist()
        assert [log_p for _, log_p in token.likeliest] == pytest.approx(best.values.tolist(), abs=1e-4)


def test_without_new_tokens_only_the_prompt_is_scored(model, tokenizer):
    prompt = ids_of(tokenizer, "The fox")
    [writing] = write_all(ContinuousBatch(model, tokenizer), [Request(prompt, 0, n_likeliest=0, scores_prompt=True)])
    assert (text_of(writing), ids_written(writing), reason_of(writing)) == ("", [], "length")
    assert len(writing.prompt_tokens) == len(prompt) - 1


def test_control_tokens_that_end_nothing_are_never_written(make_decoder, tokenizer):
    chat = tokenizer.with_chat_tokens()
    model = make_decoder(vocab_size=chat.vocab_size, context_length=24)
    user = chat.control_ids[-3]
    with torch.no_grad():
        model.embeddings.unembedding_VD[:] = 0.0
    batch = ContinuousBatch(model, chat)
    written = write_all(batch, [Request([chat.end_of_text], 60, seed=(i,)) for i in range(20)])
    assert user not in set(itertools.chain(*map(ids_written, written)))
    assert not set(chat.control_ids) & set(itertools.chain(*map(ids_written, written)))


def test_a_cancelled_text_ends_before_its_next_token_and_frees_its_slot(model, tokenizer):
    batch = ContinuousBatch(model, tokenizer, 1)
    first, second, third = (added(batch, Request(ids_of(tokenizer, "The"), 20, seed=(i,))) for i in range(3))
    batch.step()
    n_new = first.n_new
    first.is_cancelled = second.is_cancelled = True
    while not (first.has_ended and second.has_ended and third.has_ended):
        batch.step()
    assert (first.n_new, second.n_new) == (n_new, 0)
    assert third.has_ended
    assert third.pieces


def test_a_long_prompt_does_not_stall_the_others(make_decoder, tokenizer):
    model = make_decoder(vocab_size=tokenizer.vocab_size, context_length=600)
    batch = ContinuousBatch(model, tokenizer)
    writer = added(batch, Request([tokenizer.end_of_text], 100, Sampling(temperature=0)))
    batch.step()
    reader = added(batch, Request([5] * 500, 5, Sampling(temperature=0)))
    n_steps = 0
    while not reader.n_new:
        before = writer.n_new
        batch.step()
        assert writer.n_new == before + 1
        n_steps += 1
    assert 3 <= n_steps <= 5


def test_without_a_seed_texts_differ_and_the_global_generator_is_left_alone(model, tokenizer):
    before = torch.get_rng_state()
    written = write_all(ContinuousBatch(model, tokenizer), [Request(ids_of(tokenizer, "The"), 12)] * 3)
    assert len(set(map(text_of, written))) == 3
    assert torch.equal(torch.get_rng_state(), before)


def test_tokens_are_drawn_as_often_as_the_model_says(make_decoder, tokenizer):
    model = make_decoder(vocab_size=tokenizer.vocab_size, context_length=4)
    model.embeddings.unembedding_VD.data *= 0.3
    n = 800
    batch = ContinuousBatch(model, tokenizer)
    written = write_all(batch, [Request([5], 1, Sampling(top_k=4), seed=(0, i)) for i in range(n)])
    with torch.inference_mode():
        best = model.eval()(torch.tensor([[5]]))[0, -1].topk(4)
    drawn = [id_ for writing in written for id_ in ids_written(writing)]
    for id_, probability in zip(best.indices.tolist(), best.values.softmax(dim=-1).tolist(), strict=True):
        if id_ not in tokenizer.stop_ids:
            assert drawn.count(id_) / n == pytest.approx(probability, abs=0.06)


def test_other_families_are_written_one_after_the_other(tokenizer):
    for model in other_families(tokenizer.vocab_size):
        batch = ContinuousBatch(model, tokenizer, 4)
        assert isinstance(batch._slots, SlotsOfAnyModel)
        requests = [Request(ids_of(tokenizer, prompt), 12, seed=(i,)) for i, prompt in enumerate(PROMPTS)]
        crowd = write_all(batch, requests)
        assert [text_of(each) for each in crowd] == [text_of(*write_all(batch, [each])) for each in requests]


def with_nan(logits_WV: torch.Tensor, in_slot: int) -> torch.Tensor:
    logits_WV[in_slot : in_slot + 1] = torch.nan
    return logits_WV


def test_a_text_that_failed_keeps_no_tensor_and_the_log_has_its_traceback(model, tokenizer, monkeypatch):
    batch, seen, logged = ContinuousBatch(model, tokenizer, 1), [], []

    def log(*_: object, exc_info: Exception) -> None:
        logged.extend(traceback.format_exception(exc_info))

    def fails(_slot: int, _ids: Sequence[int]) -> None:
        activations = torch.zeros(3)
        seen.append(weakref.ref(activations))
        try:
            raise MemoryError
        except MemoryError as cause:
            raise RuntimeError("no room") from cause

    monkeypatch.setattr(batch._slots, "read", fails)
    monkeypatch.setattr(continuous._log, "error", log)
    [writing] = write_all(batch, [Request(ids_of(tokenizer, "The fox"), 9)])
    assert "in fails" in "".join(logged)
    assert is_out_of_memory(writing.error), "its cause is known"
    gc.collect()
    assert seen[0]() is None


def test_a_text_that_fails_fails_alone(model, tokenizer, monkeypatch):
    """One has a seed that no generator takes, one has no token of this model, one logits that are no numbers."""
    ids = ids_of(tokenizer, "The fox")
    sound = [Request(ids, 9, seed=(i,)) for i in range(3)]
    alone = [ids_written(write_all(ContinuousBatch(model, tokenizer, 8), [request])[0]) for request in sound]

    batch = ContinuousBatch(model, tokenizer, 8)
    step = batch._slots.step
    monkeypatch.setattr(batch._slots, "step", lambda token_of: with_nan(step(token_of), in_slot=4))
    negative_seed, no_token = Request(ids, 9, seed=(-1,)), Request([10**6, *ids], 9)
    requests = [sound[0], negative_seed, sound[1], no_token, sound[2], Request(ids, 9, seed=(4,))]
    written = write_all(batch, requests)
    assert [ids_written(written[i]) for i in (0, 2, 4)] == alone
    assert [type(writing.error) for writing in written] == [
        *(type(None), ValueError, type(None), IndexError, type(None), NonFiniteError),
    ]
    assert ids_written(write_all(batch, [sound[0]])[0]) == alone[0], "their slots are free again"
