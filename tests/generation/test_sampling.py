import importlib
import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from pellucid.errors import ConfigError
from pellucid.generation.penalties import add_bias, penalize_repetition, penalize_written
from pellucid.generation.sampling import (
    Sampling,
    apply_temperature,
    draw,
    keep_min_p,
    keep_top_k,
    keep_top_p,
    next_token,
)

N_DRAWS = 200_000
VOCAB_SIZE = 12
SIGNIFICANCE = 1e-4

logit_rows = arrays.arrays(np.float32, st.integers(1, 40), elements=st.floats(-30, 30, width=32, allow_subnormal=False))


@pytest.fixture(scope="module")
def processors():
    """The functions of transformers that change logits. To import them takes seconds, so only if a test asks."""
    return importlib.import_module("transformers.generation.logits_process")


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def example_logits() -> np.ndarray:
    return np.random.default_rng(3).normal(0, 1, VOCAB_SIZE).astype(np.float32)


def naive_distribution(logits: np.ndarray, sampling: Sampling) -> np.ndarray:
    """Equations 19 and 20 in plain float64 loops: temperature, then top-k, then top-p, each renormalised."""
    highest = max(logits)
    weights = [math.exp((logit - highest) / sampling.temperature) for logit in logits]
    by_weight = sorted(range(len(weights)), key=lambda i: -weights[i])
    kept = by_weight[: sampling.top_k]
    total = sum(weights[i] for i in kept)
    if sampling.top_p is not None:
        least_set, mass = [], 0.0
        for i in kept:
            if mass >= sampling.top_p:
                break
            least_set.append(i)
            mass += weights[i] / total
        kept = least_set
        total = sum(weights[i] for i in kept)
    return np.array([weights[i] / total if i in kept else 0.0 for i in range(len(weights))])


def p_value(tokens: torch.Tensor, expected: np.ndarray) -> float:
    """The chi-square test: how likely such draws are, or stranger ones, if this is their distribution."""
    from scipy.stats import chisquare

    counts, possible = np.bincount(tokens.numpy(), minlength=VOCAB_SIZE), expected > 0
    assert counts[~possible].sum() == 0
    assert possible.sum() > 1
    return float(chisquare(counts[possible], expected[possible] * len(tokens)).pvalue)


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(),
        Sampling(temperature=0.5),
        Sampling(temperature=2.5),
        Sampling(temperature=1e4),
        Sampling(top_k=4),
        Sampling(temperature=0.7, top_k=VOCAB_SIZE + 1),
        Sampling(top_p=0.9),
        Sampling(temperature=1.5, top_p=0.7),
        Sampling(temperature=1.3, top_k=7, top_p=0.8),
    ],
    ids=str,
)
def test_equations_19_and_20_draws_follow_the_distribution_that_the_naive_loop_gives(sampling: Sampling) -> None:
    logits = example_logits()
    expected = naive_distribution(logits.astype(np.float64), sampling)
    tokens = next_token(torch.tensor(logits).expand(N_DRAWS, -1), sampling, seeded())
    assert p_value(tokens, expected) > SIGNIFICANCE


def test_the_chi_square_test_would_notice_a_temperature_that_is_2_percent_off() -> None:
    logits = example_logits()
    expected = naive_distribution(logits.astype(np.float64), Sampling(temperature=1.0))
    tokens = next_token(torch.tensor(logits).expand(N_DRAWS, -1), Sampling(temperature=1.02), seeded())
    assert p_value(tokens, expected) < SIGNIFICANCE


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(top_k=400)], ids=str)
def test_logits_in_bfloat16_lose_no_token_when_their_probabilities_are_summed(sampling: Sampling) -> None:
    logits = torch.zeros(20_000, 400, dtype=torch.bfloat16)
    assert len(next_token(logits, sampling, seeded()).unique()) == 400


@given(logit_rows, st.sampled_from([None, 1, 3]), st.sampled_from([None, 0.1, 1.0]))
def test_equation_19_temperature_0_is_greedy_exactly(
    logits: np.ndarray, top_k: int | None, top_p: float | None
) -> None:
    row = torch.tensor(logits)[None]
    token = next_token(row, Sampling(temperature=0, top_k=top_k, top_p=top_p), seeded())
    assert token.item() == int(np.argmax(logits))


@given(logit_rows, st.floats(0, 1e4), st.integers(0, 2**32))
def test_top_k_1_is_greedy_at_every_temperature_even_between_equal_logits(
    logits: np.ndarray, temperature: float, seed: int
) -> None:
    token = next_token(torch.tensor(logits)[None], Sampling(temperature, top_k=1), seeded(seed))
    assert token.item() == int(np.argmax(logits))


@given(logit_rows, st.floats(1e-320, 1e-10), st.integers(0, 2**32))
def test_a_temperature_towards_0_draws_only_the_most_likely(logits: np.ndarray, temperature: float, seed: int) -> None:
    logits = np.round(logits, 2)  # so that two logits are equal or at least 0.01 apart
    token = next_token(torch.tensor(logits)[None], Sampling(temperature), seeded(seed))
    assert logits[token.item()] == logits.max()


@given(logit_rows, st.floats(min_value=0, max_value=1.7e308, exclude_min=True))
def test_every_temperature_gives_a_distribution(logits: np.ndarray, temperature: float) -> None:
    logits = np.append(logits, -np.inf)  # a forbidden token
    probabilities = apply_temperature(torch.tensor(logits), temperature).softmax(-1)
    assert probabilities.sum().item() == pytest.approx(1, abs=1e-5)
    assert probabilities[-1] == 0


@given(logit_rows, st.integers(1, 50))
def test_top_k_keeps_the_k_largest_largest_first(logits: np.ndarray, k: int) -> None:
    values, token_ids = keep_top_k(torch.tensor(logits)[None], k)
    assert values[0].tolist() == sorted(logits.tolist(), reverse=True)[:k]
    assert [logits[i] for i in token_ids[0].tolist()] == values[0].tolist()
    assert len(set(token_ids[0].tolist())) == min(k, len(logits))


@given(logit_rows, st.floats(1e-6, 1, exclude_max=True))
def test_top_p_keeps_the_least_set_with_mass_p(logits: np.ndarray, p: float) -> None:
    logits = np.sort(logits)[::-1].copy()
    kept = torch.isfinite(keep_top_p(torch.tensor(logits)[None], p)[0]).numpy()
    n_kept = int(kept.sum())
    assert kept[:n_kept].all(), "it keeps the most likely ones"
    probabilities = naive_distribution(logits.astype(np.float64), Sampling())
    rounding = 1e-5
    assert probabilities[:n_kept].sum() >= p - rounding, "they have the mass"
    assert probabilities[: n_kept - 1].sum() < p + rounding, "one fewer would not have it"


def test_a_tail_that_rounds_away_in_the_sum_is_kept_by_top_p_1_and_cut_by_less() -> None:
    row = torch.tensor([[0.0] + [-25.0] * 5])
    assert torch.isfinite(keep_top_p(row, 1.0)).sum() == 6
    assert torch.isfinite(keep_top_p(row, 0.999)).sum() == 1


@given(logits=logit_rows, p=st.floats(0, 1))
def test_equation_43_min_p_is_that_of_transformers(processors, logits: np.ndarray, p: float) -> None:
    row = torch.tensor(logits)[None]
    assert torch.equal(keep_min_p(row, p), processors.MinPLogitsWarper(p)(None, row))


@given(logit_rows, st.floats(0.01, 0.99))
def test_equation_43_min_p_keeps_those_with_a_share_of_the_highest_probability(logits: np.ndarray, p: float) -> None:
    kept = torch.isfinite(keep_min_p(torch.tensor(logits)[None], p)[0]).numpy()
    shares = np.exp(logits.astype(np.float64) - logits.max())
    certain = abs(shares - p) > 1e-5
    assert ((shares >= p) == kept)[certain].all()
    assert kept[logits.argmax()]


@given(logits=logit_rows, penalty=st.floats(0.1, 10), data=st.data())
def test_equation_44_the_repetition_penalty_is_that_of_transformers(
    processors, logits: np.ndarray, penalty: float, data: st.DataObject
) -> None:
    token_ids = data.draw(st.lists(st.integers(0, len(logits) - 1), min_size=1, max_size=60))
    row, seen = torch.tensor(logits)[None], torch.zeros(1, len(logits), dtype=torch.bool)
    seen[0, token_ids] = True
    expected = processors.RepetitionPenaltyLogitsProcessor(penalty)(torch.tensor([token_ids]), row)
    assert torch.equal(penalize_repetition(row, seen, penalty), expected)


@given(logits=logit_rows, bias=st.floats(-9, 9), data=st.data())
def test_equation_51_a_bias_multiplies_the_odds_by_its_exponential(logits, bias: float, data: st.DataObject) -> None:
    logits = np.append(logits, 0).astype(np.float32)
    id_ = data.draw(st.integers(0, len(logits) - 1))
    before, after = (
        row.double().softmax(-1)[0, id_] for row in (torch.tensor(logits)[None], biased(logits, id_, bias))
    )
    odds_before, odds_after = before / (1 - before), after / (1 - after)
    assume(max(odds_before, odds_after) < 1e9)  # 1 - p keeps too few digits
    assert (odds_after / odds_before).item() == pytest.approx(math.exp(bias), rel=1e-4)


def biased(logits: np.ndarray, id_: int, bias: float) -> torch.Tensor:
    return add_bias(torch.tensor(logits)[None], {id_: bias})


def test_equation_51_penalties_are_subtracted_once_and_for_each_time() -> None:
    logits, counts = torch.tensor([[1.0, 1.0, 1.0, -math.inf]] * 2), torch.tensor([[0.0, 1, 3, 2], [0, 0, 2, 0]])
    expected = [[1.0, 1 - 0.5 - 0.25, 1 - 0.5 - 3 * 0.25, -math.inf], [1.0, 1.0, 1 - 0.5 - 2 * 0.25, -math.inf]]
    assert penalize_written(logits, counts, presence=0.5, frequency=0.25).tolist() == expected
    greedy = [Sampling(0, presence_penalty=p, frequency_penalty=f) for p, f in ((0, 0), (0.01, 0), (0, -1), (0, 0.01))]
    chosen = [next_token(logits, way, seeded(), (counts > 0, counts)).tolist() for way in greedy]
    assert chosen == [[0, 0], [0, 0], [2, 2], [0, 0]]


@pytest.mark.parametrize("settings", [(1.3, 9, 0.9, 0.05, 1.3), (1.0, 50, 0.95, 0.05, 0.9), (2.0, 12, 1.0, 0.1, 1.1)])
def test_all_together_follow_the_distribution_that_transformers_gives(processors, settings: tuple) -> None:
    """It has all but the penalties of OpenAI. The last two of the tokens so far are written."""
    temperature, top_k, top_p, min_p, penalty = settings
    logits = torch.tensor(example_logits())
    history = torch.tensor([[1, 5, 5, 7]])
    seen = torch.zeros(1, VOCAB_SIZE, dtype=torch.bool).scatter_(1, history, True)
    counts = torch.zeros(1, VOCAB_SIZE)
    counts[0, [5, 7]] = 1
    row = processors.SequenceBiasLogitsProcessor({(2,): 1.5, (5,): -0.5})(history, logits[None])
    row = processors.RepetitionPenaltyLogitsProcessor(penalty)(history, row)
    row[0, [5, 7]] -= 0.3 + 0.2
    for process in (
        processors.TemperatureLogitsWarper(temperature),
        processors.TopKLogitsWarper(top_k),
        processors.TopPLogitsWarper(top_p),
        processors.MinPLogitsWarper(min_p),
    ):
        row = process(history, row)
    expected = row[0].double().softmax(-1).numpy()
    past = seen.expand(N_DRAWS, -1), counts.expand(N_DRAWS, -1)
    tokens = next_token(logits.expand(N_DRAWS, -1), Sampling(*settings, 0.3, 0.2, {2: 1.5, 5: -0.5}), seeded(), past)
    assert p_value(tokens, expected) > SIGNIFICANCE


def test_greedy_takes_the_likeliest_after_the_repetition_penalty() -> None:
    logits, seen = torch.tensor([[2.0, 1.5, -1.0]]), torch.tensor([[True, False, False]])
    past = seen, torch.zeros(1, 3)
    assert next_token(logits, Sampling(0, repetition_penalty=1.5), seeded(), past).item() == 1
    assert next_token(logits, Sampling(0, repetition_penalty=1.3), seeded(), past).item() == 0


@pytest.mark.parametrize("point", [0.0, 1 - 2**-24], ids=["lowest", "highest"])
def test_the_extreme_random_numbers_hit_possible_tokens(point: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "rand", lambda shape, **_: torch.full(shape, point))
    logits = torch.randn(1000, 300, generator=seeded())
    logits[:, [0, -1]] = -torch.inf
    tokens = draw(logits, seeded())
    assert ((tokens > 0) & (tokens < 299)).all()


EDGES = [5e-324, 1e-300, 1e-46, 1.4e-45, 1e-38, 1.2e-38, 1e-7, 0.5, 1 - 2**-25, 1 - 2**-53, 1.0]
LARGE_EDGES = [*EDGES, 3.4e38, 3.5e38, 1.7e308]
EDGE_LOGITS = [-math.inf, -3.4e38, -1e30, -1e-45, 0.0, 1e-45, 1e-38, 1.0, 88.8, 1e30, 3.4e38]


@given(
    logits=st.lists(st.sampled_from(EDGE_LOGITS) | st.floats(width=32, allow_nan=False), min_size=1, max_size=12),
    temperature=st.sampled_from([0.0, *LARGE_EDGES]),
    top_k=st.sampled_from([None, 1, 2, 2**31]),
    top_p=st.sampled_from([None, *EDGES]),
    min_p=st.sampled_from([None, 0.0, *EDGES]),
    penalty=st.sampled_from(LARGE_EDGES),
    others=st.sampled_from([0.0, 5e-324, 1e-38, 2, -2]),
    bias=st.sampled_from([{}, {0: 100}, {0: -100.0}, {0: 5e-324}]),
    point=st.sampled_from([0.0, 1 - 2**-24]),
)
def test_f34_every_number_at_the_edge_of_float32_draws_a_possible_token(
    logits: list[float], temperature, top_k, top_p, min_p, penalty, others, bias, point
) -> None:
    assume(math.isfinite(max(logits)))
    row = torch.tensor([logits, logits])
    seen = torch.tensor([[True] * len(logits), [i % 2 == 0 for i in range(len(logits))]])
    sampling = Sampling(temperature, top_k, top_p, min_p, penalty, others, others, bias)
    for token in next_token(row, sampling, torch.full((2, 1), point), (seen, 4096.0 * seen)).tolist():
        assert logits[token] > -math.inf


@given(logit_rows, st.sampled_from(EDGES[:4]))
def test_top_p_keeps_the_first_token_however_small_it_is(logits: np.ndarray, p: float) -> None:
    kept = keep_top_p(torch.tensor(np.sort(logits)[::-1].copy())[None], p)[0]
    assert kept.isfinite().tolist() == [True] + [False] * (len(logits) - 1)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("temperature", -1),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("top_k", 0),
        ("top_p", 0),
        ("top_p", 1.1),
        ("top_p", math.nan),
        ("min_p", 1.1),
        ("min_p", math.nan),
        ("repetition_penalty", 0),
        ("repetition_penalty", math.inf),
        ("presence_penalty", 2.1),
        ("frequency_penalty", math.nan),
    ],
)
def test_f23_every_invalid_setting_is_a_config_error_that_names_it(setting: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"^{setting}: {value} ") as error:
        Sampling(**{setting: value})
    assert error.value.exit_code == 2
    with pytest.raises(ConfigError, match="^logit_bias: nan is not in"):
        add_bias(torch.zeros(1, 4), {3: math.nan})
