"""The one loop, in step and in slots, beside a naive one: each text alone, its whole window read anew at each step."""

import itertools
import random
from collections.abc import Sequence

import numpy as np
import pytest
import torch

from pellucid.config.model import BigramConfig, RecurrentConfig
from pellucid.errors import ConfigError, NonFiniteError
from pellucid.generation import in_step as in_step_module
from pellucid.generation.answers import write_answers
from pellucid.generation.engine import Engine, in_step
from pellucid.generation.sampling import Sampling, apply_temperature, next_token
from pellucid.generation.slots import SlotsOfAnyModel, make_slots
from pellucid.generation.stream import TextStream
from pellucid.generation.text import never_written
from pellucid.generation.writing import Writing
from pellucid.model.build import build_model
from pellucid.model.language_model import LanguageModel
from pellucid.tokenizer import Tokenizer
from pellucid.tokenizer.train import train_byte_pairs

GREEDY = Sampling(temperature=0)
LIVELY = Sampling(temperature=1.5, top_k=9, top_p=0.95)
VARIED = Sampling(1.5, None, None, 0.02, 1.3, presence_penalty=0.4, frequency_penalty=0.2, logit_bias={5: 1, 9: -2})
WAYS = [GREEDY, LIVELY, VARIED]
STOPS = (3, 4)
PROMPTS = [[0, 5, 9], [0], [0, 8, 7, 6, 5, 1, 2], [0, 5, 9], [2, 9, 9, 9], [0, 1], [0, 2], [0, 11]]
TEXTS = ["", "The fox", "The", "The hen said: I", "a" * 40, "é", "The fox said: 🦊"]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    texts = ["The fox said: I found the cheese.", "The hen said: I lost the corn."]
    return train_byte_pairs(texts, vocab_size=270, special_tokens=["<|endoftext|>"])


@pytest.fixture
def model(make_decoder, tokenizer):
    return make_decoder(vocab_size=tokenizer.vocab_size, context_length=24).eval()


def other_families(vocab_size: int) -> list[LanguageModel]:
    configs = [BigramConfig(type="bigram", context_length=8), RecurrentConfig(type="gru", context_length=8, d_model=8)]
    torch.manual_seed(0)
    models = [build_model(config, vocab_size).eval() for config in configs]
    for parameter in itertools.chain(*(model.parameters() for model in models)):
        torch.nn.init.normal_(parameter, std=0.5)
    return models


@torch.no_grad()
def naive(model: LanguageModel, wanted: Writing, stop_ids: Sequence[int] = ()) -> tuple[list[int], list[float]]:
    """Tokens, and ln p of each at its temperature."""
    random_numbers = np.random.Generator(np.random.Philox(wanted.seed))
    ids, log_p = list(wanted.prompt_ids), []
    start = max(0, len(ids) - model.max_positions)
    for _ in range(wanted.max_new_tokens):
        if len(ids) - start > model.max_positions:
            start = len(ids) - max(1, model.max_positions // 2)
        logits_1V = model(torch.tensor([ids[start:]]))[:, -1]
        seen_1V = torch.zeros(logits_1V.shape, dtype=torch.bool)
        seen_1V[0, [id_ for i, id_ in enumerate(ids) if i >= len(wanted.prompt_ids) or id_ not in stop_ids]] = True
        counts_1V = torch.bincount(
            torch.tensor(ids[len(wanted.prompt_ids) :], dtype=torch.long), minlength=seen_1V.numel()
        )
        uniform = torch.tensor([[random_numbers.random(dtype=np.float32)]])
        if len(log_p) < wanted.min_new_tokens:
            logits_1V[0, [*stop_ids, *wanted.stop_ids]] = -torch.inf
        ids.append(next_token(logits_1V, wanted.sampling, uniform, (seen_1V, counts_1V[None])).item())
        log_p.append(apply_temperature(logits_1V, wanted.sampling.temperature).log_softmax(-1)[0, ids[-1]].item())
        if ids[-1] in (*stop_ids, *wanted.stop_ids):
            break
    return ids[len(wanted.prompt_ids) :], log_p


def in_slots(engine: Engine, writings: Sequence[Writing], join_every: int = 0) -> list[Writing]:
    """Texts that join one after the other, `join_every` steps apart."""
    for writing in writings:
        engine.add(writing)
        for _ in range(join_every):
            engine.step()
    while not engine.is_idle:
        engine.step()
    return list(writings)


def engine_of(model: LanguageModel, tokenizer: Tokenizer, n_slots: int = 16) -> Engine:
    slots, forbidden_ids = make_slots(model.eval(), n_slots), never_written(tokenizer)
    return Engine(model, slots, stop_ids=tokenizer.stop_ids, forbidden_ids=forbidden_ids)


def ids_of(tokenizer: Tokenizer, prompt: str) -> list[int]:
    return [tokenizer.end_of_text, *tokenizer.encode(prompt)]


def text_of(writing: Writing) -> str:
    return "".join(piece.text for piece in writing.pieces)


def mixed(tokenizer: Tokenizer) -> list[Writing]:
    """Every prompt with every way of drawing, in a random order; some go on beyond the context."""
    pairs = list(itertools.product(TEXTS, [Sampling(), *WAYS]))
    random.Random(0).shuffle(pairs)
    return [
        Writing(
            ids_of(tokenizer, text),
            5 + 3 * i % 31,
            way,
            (7, i),
            TextStream(tokenizer, ("the", "zz")),
            stop_ids=range(40 * (i % 2)),
            min_new_tokens=i % 5,
        )
        for i, (text, way) in enumerate(pairs)
    ]


@pytest.mark.parametrize("prompt_length", [1, 12, 40])
@pytest.mark.parametrize("position", ["rope", "learned", "sinusoidal"])
def test_texts_in_step_are_those_of_a_naive_loop_within_and_past_the_context(
    make_decoder, write_in_step, position, prompt_length
):
    """Positions start anew twice."""
    model = make_decoder(position={"type": position}).eval()
    prompt = [(7 * k) % 23 for k in range(prompt_length)]
    writings = [Writing(prompt, 24, way, (5, i)) for i, way in enumerate(WAYS)]
    for writing in write_in_step(model, writings):
        assert writing.token_ids == naive(model, writing)[0]
        assert len(set(writing.token_ids)) > 1


@pytest.mark.parametrize("context_length", [1, 2, 3])
def test_the_smallest_contexts_will_do(make_decoder, write_in_step, context_length):
    model = make_decoder(context_length=context_length).eval()
    for writing in write_in_step(model, [Writing([4, 8], 15, LIVELY, (1, i)) for i in range(2)]):
        assert writing.token_ids == naive(model, writing)[0]


@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_prompts_of_any_length_go_on_together_as_each_would_alone(make_decoder, write_in_step, temperature):
    """Beyond the context too, and with ln p of each token."""
    for model in [make_decoder(context_length=12).eval(), *other_families(23)]:
        writings = [Writing(p, 20, Sampling(temperature), (7, i), keeps_log_p=True) for i, p in enumerate(PROMPTS)]
        for writing in write_in_step(model, writings, STOPS):
            expected, log_p = naive(model, writing, STOPS)
            assert writing.token_ids == expected
            assert writing.log_p == pytest.approx(log_p, abs=1e-4)
            assert writing.finish_reason == ("end_of_text" if expected[-1] in STOPS else "length")
        assert len({len(writing.token_ids) for writing in writings}) > 3, "they should end at different places"


@pytest.mark.parametrize("least", [0, 9])
def test_a_text_ends_with_a_stop_id_of_its_own_but_not_before_its_least_length(make_decoder, write_in_step, least):
    model = make_decoder().eval()
    own = [Writing(p, 20, LIVELY, (7, i), stop_ids=range(5, 9), min_new_tokens=least) for i, p in enumerate(PROMPTS)]
    for writing in write_in_step(model, own, STOPS):
        assert writing.token_ids == naive(model, writing, STOPS)[0]
        assert not set(writing.token_ids[:-1]) & {*STOPS, *range(5, 9)}
        assert writing.finish_reason == ("length" if len(writing.token_ids) == 20 else "end_of_text")
    assert (min(len(writing.token_ids) for writing in own) > least) or not least
    with pytest.raises(ConfigError, match="logit_bias: -1 is no token; ids are 0 to 22"):
        write_in_step(model, [Writing([0], 3, Sampling(logit_bias={-1: 1}))])


def test_a_text_may_end_before_another_has_read_its_prompt(make_decoder, write_in_step):
    model = make_decoder().eval()
    short, long = Writing([5], 2, GREEDY), Writing(list(range(9)), 2, GREEDY)
    for writing in write_in_step(model, [short, long]):
        assert writing.token_ids == naive(model, writing)[0]


def test_answers_end_where_the_context_does_and_need_room(make_decoder):
    model = make_decoder(context_length=12).eval()
    seeds = [(7, 0, row) for row in range(len(PROMPTS))]
    answers = write_answers(model, PROMPTS, seeds, max_new_tokens=20, stop_ids=STOPS, temperature=0.7)
    for prompt, answer in zip(PROMPTS, answers, strict=True):
        assert answer.token_ids == naive(model, Writing(prompt, 12 - len(prompt), Sampling(0.7), answer.seed), STOPS)[0]
    assert max(len(p) + len(answer.token_ids) for p, answer in zip(PROMPTS, answers, strict=True)) == 12
    with pytest.raises(ConfigError, match="a prompt of 12 tokens leaves no room for an answer in 12"):
        write_answers(model, [[0] * 12, [0]], seeds[:2], max_new_tokens=5, stop_ids=STOPS)


def test_a_seeded_text_is_the_same_alone_in_a_crowd_and_in_step(model, tokenizer, write_in_step):
    crowd = in_slots(engine_of(model, tokenizer, 3), mixed(tokenizer), join_every=4)
    together, alone = write_in_step(model, mixed(tokenizer), tokenizer.stop_ids), engine_of(model, tokenizer, 3)
    for writing, in_step_with_others, wanted in zip(crowd, together, mixed(tokenizer), strict=True):
        for other in (in_step_with_others, *in_slots(alone, [wanted])):
            assert (writing.token_ids, writing.pieces) == (other.token_ids, other.pieces)
    assert {writing.finish_reason for writing in crowd} == {"stop", "length", "end_of_text"}


def test_models_that_keep_one_position_write_the_same_in_slots(make_decoder, tokenizer, write_in_step):
    linear = make_decoder(vocab_size=tokenizer.vocab_size, context_length=24, attention="linear").eval()
    for model in [linear, *other_families(tokenizer.vocab_size)]:
        assert isinstance(make_slots(model, 4), SlotsOfAnyModel)
        crowd = in_slots(engine_of(model, tokenizer, 4), mixed(tokenizer))
        together = write_in_step(model, mixed(tokenizer), tokenizer.stop_ids)
        assert [each.token_ids for each in crowd] == [each.token_ids for each in together]


def test_each_token_is_read_at_most_twice_and_an_equal_prompt_once(make_decoder, write_in_step, monkeypatch):
    model, read = make_decoder(context_length=30), []
    model.blocks[0].register_forward_pre_hook(lambda _, inputs: read.append(tuple(inputs[0].shape[:2])))
    monkeypatch.setattr(in_step_module, "TOKENS_READ_AT_ONCE", 7)
    monkeypatch.setattr(in_step_module, "SCORES_READ_AT_ONCE", 0)
    prompt = [(5 * i) % 23 for i in range(23)]
    samples = write_in_step(model, [Writing(prompt, 500, LIVELY, (0, i)) for i in range(3)])
    assert (1, 7) in read
    assert not [n_rows for n_rows, length in read if n_rows > 1 and length > 1 and n_rows * length > 3 * 15]
    of_proof = 2 * model.context_length  # the lean decoder, before it writes
    assert sum(length for _, length in read) <= 2 * 500 + of_proof
    assert len({tuple(sample.token_ids) for sample in samples}) == 3


def test_a_prompt_longer_than_the_context_goes_on_like_its_last_tokens(make_decoder, write_in_step):
    model = make_decoder()
    prompt = [(5 * i) % 23 for i in range(100)]
    prompts = (prompt, prompt[-12:], prompt[-11:])
    whole, end, less = (write_in_step(model, [Writing(p, 40, LIVELY, (0, 0))])[0].token_ids for p in prompts)
    assert whole == end != less


def test_without_a_seed_texts_differ_and_the_global_random_numbers_have_no_part(make_decoder, write_in_step):
    model = make_decoder(dropout=0.5).train()
    before = torch.get_rng_state()
    seeds = [None, None, (1, 0), (1, 1), (1, 0)]
    texts = [tuple(each.token_ids) for each in write_in_step(model, [Writing([1], 30, LIVELY, s) for s in seeds])]
    assert torch.equal(torch.get_rng_state(), before)
    assert texts[2] == texts[4]
    assert len(set(texts)) == 4
    torch.manual_seed(2)
    assert tuple(write_in_step(model, [Writing([1], 30, LIVELY, (1, 0))])[0].token_ids) == texts[2]


def test_meanwhile_the_model_is_in_eval_and_inference_mode_and_afterwards_as_before(make_decoder):
    """Also when the reader stops early, and when the model fails."""
    model, modes = make_decoder(dropout=0.5).train(), []
    hook = lambda *_: modes.append((model.training, torch.is_inference_mode_enabled()))  # noqa: E731
    model.blocks[0].register_forward_pre_hook(hook)
    steps = in_step(model, [Writing([1, 2], 9, GREEDY)], stop_ids=())
    next(steps)
    assert not torch.is_inference_mode_enabled()
    steps.close()
    assert set(modes) == {(False, True)}
    assert model.training

    def fail(*_: object) -> None:
        raise MemoryError

    model.blocks[0].register_forward_pre_hook(fail)
    with pytest.raises(MemoryError):
        next(in_step(model, [Writing([1, 2], 9, GREEDY)], stop_ids=()))
    assert model.training


def test_a_repetition_penalty_counts_the_prompt_but_not_the_end_of_text_before_it(make_decoder, write_in_step):
    model, penalized = make_decoder(), Sampling(temperature=0, repetition_penalty=1e6)

    def next_after(prompt: list[int], sampling: Sampling, stop_ids: Sequence[int] = ()) -> int:
        return write_in_step(model, [Writing(prompt, 1, sampling)], stop_ids)[0].token_ids[0]

    prompt = [next_after([0, 3], GREEDY)] * 20 + [0, 3]  # beyond the context, so the model cannot see all of them
    greedy = next_after(prompt, GREEDY)
    assert next_after(prompt, penalized, stop_ids=[greedy]) == greedy
    prompt.insert(0, greedy)
    assert next_after(prompt, penalized) != greedy
    assert next_after(prompt, penalized, stop_ids=[greedy]) == greedy


@pytest.mark.parametrize("sampling", [GREEDY, Sampling(1e4), Sampling(1e4, top_k=23, top_p=0.99)], ids=str)
def test_forbidden_tokens_are_never_drawn(make_decoder, write_in_step, sampling):
    model = make_decoder()

    def drawn(forbidden_ids: Sequence[int]) -> set[int]:
        writings = [Writing([1], 40, sampling, (0, i)) for i in range(20)]
        return {id_ for each in write_in_step(model, writings, forbidden_ids=forbidden_ids) for id_ in each.token_ids}

    forbidden_ids = [id_ for id_ in drawn(()) if id_ % 2]
    assert forbidden_ids
    assert not drawn(forbidden_ids) & set(forbidden_ids)


def test_scores_are_those_of_one_pass_over_prompt_and_text(model, tokenizer):
    prompt, way = ids_of(tokenizer, "The fox said"), Sampling(temperature=0.5, top_k=9)
    writing = Writing(prompt, 8, way, (1,), TextStream(tokenizer), n_likeliest=4, scores_prompt=True)
    in_slots(engine_of(model, tokenizer), [writing])
    new = [token for piece in writing.pieces for token in piece.tokens]
    ids = [*prompt, *(token.id for token in new)]
    with torch.inference_mode():
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
    writing = Writing(prompt, 0, text=TextStream(tokenizer), n_likeliest=0, scores_prompt=True)
    in_slots(engine_of(model, tokenizer), [writing])
    assert (text_of(writing), writing.token_ids, writing.finish_reason) == ("", [], "length")
    assert len(writing.prompt_tokens) == len(prompt) - 1


def test_a_cancelled_text_ends_before_its_next_token_and_frees_its_slot(model, tokenizer):
    engine = engine_of(model, tokenizer, 1)
    first, second, third = (Writing(ids_of(tokenizer, "The"), 20, seed=(i,)) for i in range(3))
    for writing in (first, second, third):
        engine.add(writing)
    engine.step()
    n_new = len(first.token_ids)
    first.has_ended = second.has_ended = True
    while not engine.is_idle:
        engine.step()
    assert (len(first.token_ids), second.token_ids) == (n_new, [])
    assert third.finish_reason


def test_a_long_prompt_does_not_stall_the_others(make_decoder, tokenizer):
    engine = engine_of(make_decoder(vocab_size=tokenizer.vocab_size, context_length=600), tokenizer)
    writer, reader = Writing([tokenizer.end_of_text], 100, GREEDY), Writing([5] * 500, 5, GREEDY)
    engine.add(writer)
    engine.step()
    engine.add(reader)
    n_steps = 0
    while not reader.token_ids:
        n_steps += 1
        engine.step()
        assert len(writer.token_ids) == 1 + n_steps
    assert 3 <= n_steps <= 5


def with_nan(logits_RV: torch.Tensor, row: int) -> torch.Tensor:
    logits_RV[row : row + 1] = torch.nan
    return logits_RV


def test_a_text_that_fails_fails_alone(model, tokenizer, monkeypatch):
    """One has a seed that no generator takes, one has no token of this model, one logits that are no numbers."""
    ids = ids_of(tokenizer, "The fox")
    sound = [Writing(ids, 9, seed=(i,)) for i in range(3)]
    alone = [in_slots(engine_of(model, tokenizer, 8), [Writing(ids, 9, seed=(i,))])[0].token_ids for i in range(3)]

    slots = make_slots(model, 8)
    engine, step = Engine(model, slots, stop_ids=tokenizer.stop_ids), slots.step
    monkeypatch.setattr(slots, "step", lambda token_of: with_nan(step(token_of), row=3))
    negative_seed, no_token = Writing(ids, 9, seed=(-1,)), Writing([10**6, *ids], 9)
    writings = in_slots(engine, [sound[0], negative_seed, sound[1], no_token, sound[2], Writing(ids, 9, seed=(4,))])
    assert [each.token_ids for each in sound] == alone
    assert [type(writing.error) for writing in writings] == [
        *(type(None), ValueError, type(None), IndexError, type(None), NonFiniteError),
    ]
    again = Writing(ids, 9, seed=(0,))
    assert in_slots(engine, [again])[0].token_ids == alone[0], "their slots are free again"
    model.embeddings.unembedding_VD.data.fill_(torch.nan)
    with pytest.raises(NonFiniteError, match="its logits are NaN or infinite"):
        next(in_step(model, [Writing(ids, 9)], stop_ids=()))
