"""Writing, serving and evaluating on a GPU gives what a CPU gives."""

import asyncio
from collections.abc import Sequence

import pytest
import torch

from model.model_axes import covering_combinations, tiny_config
from pellucid.evaluation.loss import score
from pellucid.generation.answers import write_answers
from pellucid.generation.beam_search import beam_search
from pellucid.generation.engine import Engine, in_step
from pellucid.generation.sampling import Sampling
from pellucid.generation.slots import make_slots
from pellucid.generation.stream import TextStream
from pellucid.generation.writing import Writing
from pellucid.inspection.trace import trace
from pellucid.model.build import build_model
from pellucid.model.language_model import LanguageModel
from pellucid.runtime.precision import Precision
from pellucid.tokenizer import Tokenizer
from pellucid.tokenizer.train import train_byte_pairs
from tiny import random_batch, tiny_decoder

CPU = torch.device("cpu")
GREEDY = Sampling(temperature=0)
WAYS = [Sampling(), GREEDY, Sampling(temperature=0.7, top_k=5, top_p=0.9), Sampling(min_p=0.02, repetition_penalty=1.3)]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_byte_pairs(["The fox said: I found the cheese."], vocab_size=270, special_tokens=["<|endoftext|>"])


def outspoken(config, vocab_size: int = 23) -> LanguageModel:
    """Its weights are large, so that the likeliest token is likeliest by far, whatever the rounding."""
    torch.manual_seed(0)
    model = build_model(config, vocab_size)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return model.eval()


def written_by(model: LanguageModel, sampling: Sampling, n_samples: int = 2) -> list[list[int]]:
    writings = [Writing([1, 2, 3], 12, sampling, (3, i)) for i in range(n_samples)]
    list(in_step(model, writings, stop_ids=()))
    return [writing.token_ids for writing in writings]


def test_greedy_search_finds_on_a_gpu_what_it_finds_on_a_cpu_in_every_model(device):
    for config in covering_combinations(strength=1, feed_forward=[{"type": "dense"}, {"type": "moe", "n_experts": 3}]):
        model = outspoken(config)
        assert written_by(model.to(device), GREEDY) == written_by(model.to(CPU), GREEDY), config


@pytest.mark.parametrize(
    ("sampling", "dtype"),
    [*((sampling, torch.bfloat16) for sampling in WAYS), (WAYS[0], torch.float16)],
    ids=["drawn", "greedy", "top", "min_p", "drawn-fp16"],
)
def test_a_seed_writes_the_same_twice_in_a_short_format(device, sampling, dtype):
    model = outspoken(tiny_config(qk_norm=True)).to(device)
    with Precision(device, dtype).for_decoding().autocast():
        first, second = (written_by(model, sampling) for _ in range(2))
    assert first == second


AXES = [{"qk_norm": True}, {"norm": "rms_norm", "n_kv_heads": 1}, {"attention": "linear"}, {"norm_placement": "post"}]


@pytest.mark.parametrize(
    ("axes", "dtype"), [*((axes, torch.float32) for axes in AXES), (AXES[0], torch.bfloat16)], ids=str
)
def test_a_text_is_the_same_alone_and_in_a_batch(device, tokenizer, axes, dtype):
    model = outspoken(tiny_config(context_length=16, **axes), tokenizer.vocab_size).to(device)

    def texts_of(numbers: Sequence[int]) -> list[list[int]]:
        options = {"n_likeliest": 2, "scores_prompt": True}
        writings = [Writing(prompt, 20, WAYS[i], (i,), TextStream(tokenizer), **options) for i in numbers]
        with Precision(device, dtype).autocast():
            engine = Engine(model, make_slots(model, 5), stop_ids=tokenizer.stop_ids)
            for writing in writings:
                engine.add(writing)
            while not engine.is_idle:
                engine.step()
        return [writing.token_ids for writing in writings]

    prompt = [tokenizer.end_of_text, *tokenizer.encode("The fox")]
    together = texts_of(range(len(WAYS)))
    assert all(together)
    if dtype == torch.float32:  # with fewer digits a GPU's rounding, another in another batch, may change a draw
        assert [texts_of([i])[0] for i in range(len(WAYS))] == together


@pytest.mark.parametrize("n_requests", [1, 8])
def test_the_engine_of_the_server_writes_on_it(device, tokenizer, n_requests):
    pytest.importorskip("fastapi")
    from pellucid.web.openai.engine_thread import EngineThread

    model = outspoken(tiny_config(context_length=24), tokenizer.vocab_size).to(device)
    texts = [Writing([tokenizer.end_of_text], 10, seed=(i,), text=TextStream(tokenizer)) for i in range(n_requests)]

    async def written() -> Sequence[Writing]:
        job = engine.submit(texts, is_streamed=False)
        await job.end()
        engine.release(job)
        return job.writings

    engine = EngineThread(model, tokenizer, Precision(device, torch.bfloat16))
    try:
        writings = asyncio.run(written())
    finally:
        engine.close()
    assert all(writing.pieces[-1].finish_reason for writing in writings)


def test_beam_search_finds_the_same_texts(device):
    model = outspoken(tiny_config())

    def found_on(place: torch.device) -> list[list[int]]:
        options = {"n_beams": 3, "max_new_tokens": 6, "length_penalty": 1.0, "forbidden_ids": [4]}
        found = beam_search(model.to(place), [1, 2], has_ended=lambda ids: ids[-1] == 3, **options)
        return [each.token_ids for each in found]

    assert found_on(device) == found_on(CPU)


def test_answers_to_many_prompts_are_those_of_a_cpu(device):
    model = outspoken(tiny_config(context_length=20))
    prompts, seeds = [[0, 5, 9], [0], [2, 9, 9, 9, 1]], [(1, row) for row in range(3)]
    options = {"max_new_tokens": 10, "stop_ids": [3], "keeps_log_p": True}
    expected = write_answers(model.to(CPU), prompts, seeds, **options)
    for found, answer in zip(write_answers(model.to(device), prompts, seeds, **options), expected, strict=True):
        assert found.token_ids == answer.token_ids
        assert found.log_p == pytest.approx(answer.log_p, rel=1e-3, abs=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_text_is_scored_and_traced_as_on_a_cpu(device, dtype):
    decoder = tiny_decoder()

    def scored_on(place: torch.device, dtype: torch.dtype):
        batches = [(batch, batch.targets_BT.numpy()) for batch in map(random_batch, range(3))]
        return score(decoder.to(place), batches, Precision(place, dtype))

    expected = scored_on(CPU, torch.float32)
    error = 1e-5 if dtype == torch.float32 else 0.05
    assert scored_on(device, dtype).nats == pytest.approx(expected.nats, rel=error)

    def traced_on(place: torch.device) -> tuple[torch.Tensor, list[torch.Tensor]]:
        traced = trace(decoder.to(place), [1, 2, 3, 4], knock_out=[("head", 0, 1)])
        return traced.logits, [step.values for step in traced.inside(1)]

    torch.testing.assert_close(traced_on(device), traced_on(CPU), rtol=1e-4, atol=1e-5)
