import math
from collections.abc import Callable, Iterator

import pytest
import torch

from model.family import FAMILY, family_config
from model.model_axes import build_away_from_zero
from pellucid.config.model import LearnedConfig, SinusoidalConfig
from pellucid.errors import ConfigError
from pellucid.generation.beam_search import Continuation, beam_search
from pellucid.generation.sampling import Sampling
from pellucid.generation.writing import Writing
from pellucid.model.bigram import Bigram
from pellucid.model.decoder import Decoder
from pellucid.model.language_model import LanguageModel

MakeDecoder = Callable[..., Decoder]
END = 0
ROUNDING = 1e-5  # of a sum of ln p, none of them near 0, in float32: 80 roundings


def found(model: LanguageModel, prompt_ids: list[int], **options: object) -> list[Continuation]:
    settings = {"n_beams": 4, "max_new_tokens": 6, "length_penalty": 1.0, **options}
    return beam_search(model, prompt_ids, has_ended=lambda token_ids: token_ids[-1] == END, **settings)  # type: ignore[arg-type]


def random_bigram(vocab_size: int, seed: int) -> Bigram:
    model = Bigram(vocab_size, 8)
    torch.nn.init.normal_(model.logits_VV, std=2.0, generator=torch.Generator().manual_seed(seed))
    return model


def bigram(*rows: tuple[float, ...]) -> Bigram:
    """p(next | last), a row for each last token."""
    model = Bigram(len(rows), 8)
    model.logits_VV.data = torch.tensor(rows).log()
    return model


@torch.no_grad()
def every_text(
    model: LanguageModel, prompt_ids: list[int], n_new: int, length_penalty: float
) -> Iterator[tuple[list[int], float]]:
    """Each text that ends or is as long as it may be, and its score: equation 42 without beams and without a cache."""
    open_texts, start = [([], 0.0)], max(0, len(prompt_ids) - model.max_positions)
    for length in range(1, n_new + 1):
        before, open_texts = open_texts, []
        n_read = len(prompt_ids) + length - 1
        if n_read - start > model.max_positions:
            start = n_read - max(1, model.max_positions // 2)
        for token_ids, total in before:
            logits_V = model(torch.tensor([[*prompt_ids, *token_ids][start:]]))[0, -1]
            for token_id, log_p in enumerate(logits_V.log_softmax(-1).tolist()):
                if token_id == END or length == n_new:
                    yield [*token_ids, token_id], (total + log_p) / length**length_penalty
                else:
                    open_texts.append(([*token_ids, token_id], total + log_p))


@pytest.mark.parametrize("length_penalty", [-1.0, 0.6, 3.0])
@pytest.mark.parametrize("kind", ["rope", "learned", "sinusoidal, beyond the context"])
def test_with_as_many_beams_as_texts_the_search_is_exhaustive(
    make_decoder: MakeDecoder, kind: str, length_penalty: float
) -> None:
    match kind:
        case "rope":
            model = make_decoder(vocab_size=4)
        case "learned":
            model = make_decoder(vocab_size=4, position=LearnedConfig(type="learned"))
        case _:
            model = make_decoder(vocab_size=4, context_length=3, position=SinusoidalConfig(type="sinusoidal"))
    texts = {tuple(text): score for text, score in every_text(model.eval(), [1, 2], 4, length_penalty)}
    assert len(texts) == 1 + 3 + 9 + 27 + 81
    best = found(model, [1, 2], n_beams=len(texts), max_new_tokens=4, length_penalty=length_penalty)
    assert {tuple(each.token_ids): each.score for each in best} == pytest.approx(texts, rel=ROUNDING)
    assert [each.score for each in best] == pytest.approx(sorted(texts.values(), reverse=True), rel=ROUNDING)


@pytest.mark.parametrize("name", FAMILY)
def test_the_search_is_exhaustive_for_every_kind_of_model_past_the_context_too(name: str) -> None:
    model = build_away_from_zero(family_config(name, context_length=3), vocab_size=3).eval()
    texts = {tuple(text): score for text, score in every_text(model, [1, 2], 4, 0.6)}
    best = found(model, [1, 2], n_beams=len(texts), max_new_tokens=4, length_penalty=0.6)
    assert {tuple(each.token_ids): each.score for each in best} == pytest.approx(texts, rel=ROUNDING)


@pytest.mark.parametrize("length_penalty", [0.0, 2.0])
@pytest.mark.parametrize("seed", range(2))
def test_one_beam_is_greedy_search_within_and_past_the_context(
    make_decoder: MakeDecoder, write_in_step, seed: int, length_penalty: float
) -> None:
    for model in (make_decoder(vocab_size=9, context_length=7), random_bigram(9, seed)):
        prompt_ids = [1 + seed, 3, 1 + seed]
        [greedy] = write_in_step(model, [Writing(prompt_ids, 20, Sampling(temperature=0))], [END])
        [best] = found(model, prompt_ids, n_beams=1, max_new_tokens=20, length_penalty=length_penalty)
        assert best.token_ids == greedy.token_ids


def test_more_beams_find_a_likelier_text_that_begins_with_a_less_likely_token() -> None:
    model = bigram((0.0, 0.6, 0.4), (0.4, 0.3, 0.3), (0.98, 0.01, 0.01))
    [greedy] = found(model, [END], n_beams=1, length_penalty=0.0)
    best, *_ = found(model, [END], n_beams=2, length_penalty=0.0)
    assert greedy.token_ids == [1, END]
    assert greedy.score == pytest.approx(math.log(0.6 * 0.4))
    assert best.token_ids == [2, END]
    assert best.score == pytest.approx(math.log(0.4 * 0.98))


def counted(model: Bigram) -> list[int]:
    """A list to which each step of the model appends the number of beams."""
    steps: list[int] = []
    model.register_forward_pre_hook(lambda _, inputs: steps.append(len(inputs[0])))
    return steps


def test_the_search_stops_when_no_open_beam_can_win_and_not_before() -> None:
    ends_soon = bigram((0.9, 0.09, 0.01), (0.9, 0.09, 0.01), (0.9, 0.09, 0.01))
    steps = counted(ends_soon)
    found(ends_soon, [END], n_beams=2, max_new_tokens=50, length_penalty=0.0)
    assert len(steps) == 2
    # With a penalty a long text may win: its first token has probability 0.3, all others nearly 1.
    wins_late = bigram((0.7, 0.3, 0.0), (0.001, 0.999, 0.0), (1.0, 0.0, 0.0))
    steps = counted(wins_late)
    best, *_ = found(wins_late, [END], n_beams=2, max_new_tokens=50, length_penalty=1.0)
    assert best.token_ids == [1] * 50
    assert len(steps) == 50


def test_forbidden_tokens_are_never_written_and_no_tokens_are_an_empty_text() -> None:
    model = random_bigram(6, seed=3)
    best = found(model, [1], forbidden_ids=(2, 4), n_beams=40, max_new_tokens=3)
    assert {token_id for each in best for token_id in each.token_ids} == {0, 1, 3, 5}
    assert all(math.isfinite(each.score) for each in best)
    assert found(model, [1], max_new_tokens=0) == [Continuation([], 0.0)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_beams": 0}, "beams: 0 keeps no text; give at least 1"),
        ({"length_penalty": math.nan}, r"length_penalty: nan is not in \[-10, 10\]"),
        ({"length_penalty": 11.0}, r"length_penalty: 11.0 is not in \[-10, 10\]"),
    ],
)
def test_options_of_a_search_that_make_no_sense_are_a_config_error(options: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        found(random_bigram(3, seed=0), [1], **options)


def test_the_models_mode_and_its_weights_are_left_alone(make_decoder: MakeDecoder) -> None:
    model = make_decoder(dropout=0.5).train()
    before = [parameter.clone() for parameter in model.parameters()]
    assert found(model, [1]) == found(model, [1])
    assert model.training
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
